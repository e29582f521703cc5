"""A learner as files for other programs: tensors, graphs, and a certificate of their digests.

    f_T.safetensors, f_T.json      weights, exact; classes, input, formula          (format safetensors)
    f_T.pt2                        a graph, for `torch.export.load`                 (torch)
    f_T.onnx                       a graph, for ONNX Runtime and others             (onnx)
    f_star.*                       the same of f*, where `adapt` has made one
    backbone.integer.npz           an integer backbone (`scroll.embedding.integer_network`)
    certificate.json               digests of statistics, f_T, f* and each file; classes, settings

A graph maps features or images to logits and columns of labels. It cuts the weights of f_T into limbs
(`scroll.export.modules`), so that its logits are those of the library to the last bit.
"""
import importlib.util
import json
import os
import platform
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np

import scroll
from scroll.archive import new_part, sha256, unwritable
from scroll.arguments import need_torch, not_installed, shown
from scroll.errors import InputError

FORMATS = ('safetensors', 'torch', 'onnx')
USUAL = ('safetensors', 'torch')
CERTIFICATE = 'certificate.json'
FORMAT = 'scroll-model-1'
_NEEDS = dict(safetensors=('safetensors',), torch=(), onnx=('onnx', 'onnxscript'))


def check_formats(formats) -> None:
    """InputError for a format that there is not, or whose packages are not installed."""
    if isinstance(formats, str) or not formats or not set(formats) <= set(FORMATS):
        raise InputError(f'formats {shown(formats)}: expected some of {", ".join(FORMATS)}')
    need_torch('export')
    for name in formats:
        for package in _NEEDS[name]:
            if importlib.util.find_spec(package) is None:
                raise not_installed(f'format {name}', package, 'export')


def check_folder(folder) -> Path:
    """The folder after all links; InputError unless it can be written whole: it is new, or empty."""
    if os.fspath(folder) == '-':
        raise InputError('- is standard output: expected a folder (one of this name is ./-)')
    folder = Path(os.path.realpath(folder))
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f'{folder} is there already: give a folder that is new')
    return folder


def export(learner, folder, formats=USUAL, image_shape=None, names=None, command: str = None) -> None:
    """Write what a `Scroll` predicts with to a new folder, whole or not at all; f* where `adapt` was called
    since.

    Args:
        image_shape: (H, W, C), or (H, W) of grey images, that graphs take; default: of the buffer's samples,
            or the size that the backbone works at.
        names: (K,), names of the classes. command: what makes the statistics again, for the certificate.

    Raises:
        InputError: nothing was learned, the folder is there or cannot be written, or packages are missing.
    """
    check_formats(formats)
    folder = check_folder(folder)
    predictors = {'f_T': learner.predictor()}
    if learner.adapted_ is not None:
        predictors['f_star'] = learner.adapted_
    facts = _certificate(learner, predictors, names, command)
    with unwritable(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_part(folder, folder=True) as part:
            for name, predictor in predictors.items():
                _write(part, name, predictor, learner, formats, image_shape, facts)
            facts['files'] = {path.name: sha256(path) for path in sorted(part.iterdir())}
            text = json.dumps(facts, indent=1, default=lambda value: value.item())  # numpy's numbers
            (part / CERTIFICATE).write_text(f'{text}\n', encoding='utf-8')
            os.replace(part, folder)


def _certificate(learner, predictors: dict, names, command) -> dict:
    """The certificate, without the digests of files."""
    import torch

    from scroll.embedding.machine import describe_machine
    params, statistics = learner.get_params(), learner.statistics_
    embedder = params.pop('embedder')
    if params['adaptation'] is not None:
        params['adaptation'] = asdict(params['adaptation'])
    facts = dict(format=FORMAT, anywhere=dict(statistics=learner.digest(), f_T=predictors['f_T'].digest()))
    if embedder is not None:
        facts['anywhere'] = dict(backbone=embedder.psi_digest) | facts['anywhere']
        facts['embedder'] = dict(digest=embedder.digest, arithmetic=embedder.dtype,
                                 **asdict(embedder.preprocessing))
    if 'f_star' in predictors:
        facts['here'] = {'machine': describe_machine('cpu' if embedder is None else embedder.device),
                         'f*': predictors['f_star'].digest()}
    return facts | dict(
        samples=statistics.total, dim=learner.n_features_in_, classes=statistics.classes.tolist(),
        counts=statistics.counts.tolist(), names=None if names is None else list(map(str, names)),
        settings=params, ridge_lambda=learner.ridge_lambda_, command=command,
        versions={'python': platform.python_version(), 'scroll': scroll.__version__, 'numpy': np.__version__,
                  'torch': torch.__version__})


def _write(folder: Path, name: str, predictor, learner, formats, shape, facts: dict) -> None:
    """The files of one predictor."""
    import torch

    from scroll.export.modules import torch_module, whole_module
    embedder = learner.embedder if name == 'f_T' else predictor.embedder
    if embedder is not None:
        buffer = learner.buffer_
        held = buffer.content().samples.shape[1:] if buffer is not None and len(buffer) else None
        shape = tuple(shape or held or (embedder.preprocessing.input_size,) * 2 + (3,))
        example = torch.zeros((2, *shape), dtype=torch.uint8)
    else:
        example = torch.ones((2, facts['dim']), dtype=torch.float64)
    head = torch_module(predictor)
    about = dict(format='scroll-predictor-1', predictor=name, digest=predictor.digest(),
                 classes=facts['classes'],
                 input=dict(name='X', dtype=str(example.dtype)[6:], shape=['samples', *example.shape[1:]]),
                 outputs=dict(logits='float64 (samples, classes)',
                              label='int64 (samples,), place in classes'), formula=head.FORMULA)
    facts.setdefault('input', about['input'])
    if 'safetensors' in formats:
        _write_tensors(folder, name, head, embedder, about)
    if set(formats) == {'safetensors'}:
        return
    try:
        if getattr(embedder, 'dtype', '') == 'bfloat16':
            raise ValueError('its backbone works in bfloat16')
        _write_graphs(folder, name, whole_module(predictor, embedder, shape), example, formats, about)
    except (InputError, OSError):
        raise
    except Exception as error:              # whatever a backbone does that no graph can
        text = ' '.join(str(error).split())[:200]
        raise InputError(f'{name} cannot be exported as a graph ({type(error).__name__}: {text}): export the '
                         'format safetensors alone') from error


def _write_graphs(folder: Path, name: str, module, example, formats, about: dict) -> None:
    """Those of the formats that are graphs."""
    import torch
    free = ({0: torch.export.Dim('samples')},)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'No complete tensor')         # of weights with channels last
        program = torch.export.export(module, (example,), dynamic_shapes=free)
        if 'torch' in formats:
            torch.export.save(program, folder / f'{name}.pt2')
        if 'onnx' in formats:
            graph = torch.onnx.export(program, (example,), dynamic_shapes=free, input_names=['X'],
                                      output_names=['logits', 'label'], dynamo=True, verbose=False)
            graph.model.metadata_props['scroll'] = json.dumps(about)
            graph.save(folder / f'{name}.onnx', external_data=False)


def _write_tensors(folder: Path, name: str, head, embedder, about: dict) -> None:
    """Weights, exact, and the backbone: as it was given for f_T, for f* with adapters and norms folded."""
    from safetensors.torch import save
    tensors = {f'head.{key}': tensor for key, tensor in head.state_dict().items()}
    if embedder is not None and embedder.dtype == 'integer':
        embedder.net.save(folder / 'backbone.integer.npz', dict(psi=embedder.psi_digest))
    elif embedder is not None:
        tensors |= {f'backbone.{key}': tensor for key, tensor in embedder.pristine.state_dict().items()
                    if not key.startswith('classifier.')}
    text = json.dumps(about, indent=1)
    (folder / f'{name}.safetensors').write_bytes(
        save({key: tensor.detach().cpu().clone().contiguous() for key, tensor in tensors.items()},
             metadata=dict(about=text)))
    (folder / f'{name}.json').write_text(f'{text}\n', encoding='utf-8')
