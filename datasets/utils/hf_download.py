"""Files of data sets from the Hugging Face hub: needs `huggingface_hub` and a network."""
from pathlib import Path

from scroll.errors import InputError


def hf_download(repo_id: str, root, filename: str = None, repo_type: str = 'dataset', **options) -> str:
    """Fetch one file of a repository, or all of them, into the folder `root`, unless they are there.

    Args:
        filename: path within the repository; None: every file. options: of `huggingface_hub.hf_hub_download`
            or `snapshot_download` (revision, token, allow_patterns, ...).

    Returns:
        The path of the file, or of the folder.

    Raises:
        InputError: the package is missing, or the files cannot be had; where they belong is said.
    """
    where = Path(root) / (filename or '')
    what = f'{filename or "all files"} of {repo_id} (Hugging Face hub, {repo_type})'
    if filename and where.is_file():
        return str(where)
    try:
        import huggingface_hub
    except ImportError as error:
        raise InputError(f'{where} is missing: fetch {what}, and put {"it" if filename else "them"} there, '
                         'or install huggingface_hub') from error
    try:
        if filename:
            return str(huggingface_hub.hf_hub_download(repo_id, filename, repo_type=repo_type, local_dir=root,
                                                       **options))
        return str(huggingface_hub.snapshot_download(repo_id, repo_type=repo_type, local_dir=root, **options))
    except Exception as error:              # no network, no such repository, no access
        raise InputError(f'{what} cannot be fetched ({type(error).__name__}: '
                         f'{" ".join(str(error).split())[:200]}): put {"it" if filename else "them"} at '
                         f'{where}') from error
