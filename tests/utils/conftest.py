"""What tests of several modules share."""
from tests.models.conftest import few_digits  # noqa: F401
