"""Mammoth's names for where a run lives and how its randomness begins."""

from core.environment import base_path, get_checkpoint_path, get_device, set_random_seed, warn_once
from core.seeded_loader import create_seeded_dataloader

base_data_path = base_path_dataset = base_path  # names of forks
