"""Mammoth's names for where a run lives and how its randomness begins."""
from core.environment import (  # noqa: F401
    base_path,
    create_seeded_dataloader,
    get_checkpoint_path,
    get_device,
    set_random_seed,
    warn_once,
)
