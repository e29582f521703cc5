"""One certificate, checked in many ways to compute: threads, instructions, libraries, batches, layouts.

    python scripts/same_everywhere.py results/certificates/seq-digits.json

Each way is a process of its own, without a feature cache. Prints a Markdown table; exit code 0 if no line
differs anywhere, else 1. Flags of `certify.py --check` go behind the script's own.
"""
import os
import subprocess
import sys
import time

from core.arguments import ArgumentParser
from core.plugins import ROOT
from scroll.errors import InputError
from scroll.progress import Progress

_RUN = 'from scripts._root import run\nrun("bench.certify.command")'
_NO_ONEDNN = f'import torch\ntorch.backends.mkldnn.set_flags(False)\n{_RUN}'
# name -> (environment, flags, program)
SETTINGS = {
    'one thread': ({}, [], _RUN),
    'two threads': ({}, ['--num_threads', '2'], _RUN),
    'oneDNN held to AVX2': (dict(ONEDNN_MAX_CPU_ISA='AVX2'), [], _RUN),
    'oneDNN held to SSE4.1': (dict(ONEDNN_MAX_CPU_ISA='SSE41'), [], _RUN),
    'torch without vectors': (dict(ATEN_CPU_CAPABILITY='default'), [], _RUN),
    'both of these': (dict(ONEDNN_MAX_CPU_ISA='SSE41', ATEN_CPU_CAPABILITY='default'), [], _RUN),
    'float32, not 8 bits': (dict(SCROLL_EIGHT_BIT='0'), [], _RUN),
    'no oneDNN': ({}, [], _NO_ONEDNN),
    'no oneDNN, MKL in compatible mode': (dict(MKL_CBWR='COMPATIBLE'), [], _NO_ONEDNN),
    'OpenBLAS for Nehalem': (dict(OPENBLAS_CORETYPE='Nehalem'), [], _RUN),
    'OpenBLAS for Haswell': (dict(OPENBLAS_CORETYPE='Haswell'), [], _RUN),
    'batches of 7': ({}, ['--embed_chunk', '7'], _RUN),
    'batches of 32': ({}, ['--embed_chunk', '32'], _RUN),
    'contiguous maps': ({}, ['--channels_last', '0'], _RUN),
}


def main() -> int:
    """The exit code."""
    parser = ArgumentParser(prog='same_everywhere.py', description=__doc__)
    parser.add_argument('certificate', help='file of certify.py')
    parser.add_argument('--only', help=f"some of the settings, separated by ';': {'; '.join(SETTINGS)}")
    options, flags = parser.parse_known_args()
    chosen = list(SETTINGS) if options.only is None else [name.strip() for name in options.only.split(';')]
    if unknown := set(chosen) - set(SETTINGS):
        raise InputError(f"--only {unknown.pop()}: expected some of {'; '.join(SETTINGS)}")
    words = ['--check', os.path.abspath(options.certificate), '--non_verbose', '1', '--feature_cache', '0',
             *flags]
    print('| setting | check | seconds |\n|---|---|---|')
    codes = []
    for name in chosen:
        environment, more, program = SETTINGS[name]
        for flag, usual in ('--device', 'cpu'), ('--num_threads', '1'):
            more = more if flag in (*flags, *more) else [*more, flag, usual]
        began = time.perf_counter()
        with Progress(f'Checking with {name}'):
            done = subprocess.run([sys.executable, '-c', program, *words, *more], cwd=ROOT,
                                  capture_output=True, env={**os.environ, **environment}, text=True)
        if done.returncode == 2 and not codes:          # no certificate, or flags that are none: once
            raise InputError(done.stderr.partition(': error: ')[2])
        said = (done.stderr + done.stdout * (done.returncode < 2)).strip().splitlines() or ['nothing said']
        print(f'| {name} | {said[-1].strip()} | {time.perf_counter() - began:.0f} |', flush=True)
        codes.append(done.returncode)
    return max(codes)
