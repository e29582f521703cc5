"""What data-set files build on."""
from datasets.utils.defaults import set_default_from_args
from datasets.utils.hf_download import hf_download

__all__ = ['hf_download', 'set_default_from_args']
