"""One certificate, checked in many ways to compute: threads, instructions, libraries, batches, layouts.

    python scripts/same_everywhere.py results/certificates/seq-digits.json

Each way is a process of its own, without a feature cache. Prints a Markdown table of the digests; exit code
0 if no line differs anywhere, else 1. Flags of `certify.py --check` go behind the script's own.
"""
import os
import re
import subprocess
import sys
import time

from core.arguments import ArgumentParser
from core.plugins import ROOT
from scroll.errors import InputError

_RUN = '''import sys
from bench.certify.command import main
from core.commands import run_command
sys.exit(run_command(main))'''
_NO_ONEDNN = f'import torch\ntorch.backends.mkldnn.set_flags(False)\n{_RUN}'
# name -> (environment, flags, program)
SETTINGS = {
    'one thread': ({}, [], _RUN),
    'two threads': ({}, ['--num_threads', '2'], _RUN),
    'oneDNN held to AVX2': (dict(ONEDNN_MAX_CPU_ISA='AVX2'), [], _RUN),
    'oneDNN held to SSE4.1': (dict(ONEDNN_MAX_CPU_ISA='SSE41'), [], _RUN),
    'torch without vectors': (dict(ATEN_CPU_CAPABILITY='default'), [], _RUN),
    'both of these': (dict(ONEDNN_MAX_CPU_ISA='SSE41', ATEN_CPU_CAPABILITY='default'), [], _RUN),
    'no oneDNN': ({}, [], _NO_ONEDNN),
    'no oneDNN, MKL in compatible mode': (dict(MKL_CBWR='COMPATIBLE'), [], _NO_ONEDNN),
    'OpenBLAS for Nehalem': (dict(OPENBLAS_CORETYPE='Nehalem'), [], _RUN),
    'OpenBLAS for Haswell': (dict(OPENBLAS_CORETYPE='Haswell'), [], _RUN),
    'batches of 7': ({}, ['--embed_chunk', '7'], _RUN),
    'batches of 32': ({}, ['--embed_chunk', '32'], _RUN),
    'contiguous maps': ({}, ['--channels_last', '0'], _RUN),
}
_COLUMNS = ('features of built-in images', 'statistics', 'f_T, ridge, lambda', 'f_T, nearest centroid',
            'buffer, herding, |M| = 500')


def parse_args(words=None):
    parser = ArgumentParser(prog='same_everywhere.py', description=__doc__)
    parser.add_argument('certificate')
    parser.add_argument('--only', help=f"some of the settings, separated by ';': {'; '.join(SETTINGS)}")
    return parser.parse_known_args(words)


def check(certificate: str, setting: str, flags: list) -> tuple:
    """(exit code, digests of _COLUMNS, last line, seconds) of a check under a setting."""
    environment, more, program = SETTINGS[setting]
    words = ['--check', certificate, '--non_verbose', '1', '--feature_cache', '0', '--device', 'cpu', *flags]
    words += more if '--num_threads' in more else [*more, '--num_threads', '1']
    began = time.perf_counter()
    done = subprocess.run([sys.executable, '-c', program, *words], cwd=ROOT,
                          env={**os.environ, **environment}, capture_output=True, text=True)
    said = (done.stdout + done.stderr).strip().splitlines() or ['nothing was said']
    cells = []
    for column in _COLUMNS:
        line = next((line for line in said if line.strip().startswith(column)), '')
        found = re.search(r'  ([0-9a-f]{8})[0-9a-f]{8}  (?:the same|DIFFERS: ([0-9a-f]{8}))', line)
        cells.append('' if found is None else f'**{found[2]}**' if found[2] else found[1])
    return done.returncode, cells, said[-1].strip(), time.perf_counter() - began


def main() -> int:
    """The exit code."""
    options, flags = parse_args()
    chosen = list(SETTINGS) if options.only is None else [name.strip() for name in options.only.split(';')]
    for name in chosen:
        if name not in SETTINGS:
            raise InputError(f"--only {name}: expected some of {'; '.join(SETTINGS)}")
    certificate = os.path.abspath(options.certificate)
    titles = ('setting', 'built-in images', 'statistics', 'f_T, ridge', 'f_T, NCC', 'buffer of 500', 'check',
              'seconds')
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    codes = []
    for name in chosen:
        code, cells, last, seconds = check(certificate, name, flags)
        print('| ' + ' | '.join([name, *cells, last, f'{seconds:.0f}']) + ' |', flush=True)
        codes.append(code)
    return max(codes)
