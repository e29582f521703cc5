"""Files from the network, fetched once."""
import hashlib
import http.client
import shutil
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit

from scroll.archive import atomic_write
from scroll.errors import InputError


def fetch(url: str, folder) -> Path:
    """The file at `url`, below `folder`, fetched if it is not there, whole or not at all; InputError if it
    cannot be had. The page of a file on the Hugging Face hub (`.../blob/...`) stands for the file."""
    parts = urlsplit(url)
    source = url.replace('/blob/', '/resolve/', 1) if parts.netloc == 'huggingface.co' else url
    name = Path(unquote(parts.path)).name or 'file'
    path = Path(folder) / f'{hashlib.sha256(url.encode()).hexdigest()[:12]}-{name}'
    try:
        if not path.is_file():
            with urllib.request.urlopen(source, timeout=30) as answer, atomic_write(path) as file:
                shutil.copyfileobj(answer, file)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = ' '.join(str(error).split())
        raise InputError(f'{url} cannot be fetched ({reason}): fetch it by other means, and give the path '
                         'of the file') from error
    return path
