"""A learner as files for other programs: tensors, graphs, and a certificate of their digests.

    f_T.safetensors, f_T.json      weights, exact; classes, formula (format safetensors)
    f_T.pt2, f_T.onnx              graphs to logits and labels (`scroll.exports.graphs`)
    f_star.*                       the same of f*, where `adapt` has made one
    backbone.integer.npz           an integer backbone (`scroll.embedding.integer_network`)
    certificate.json               digests of statistics, f_T, f* and each file; classes, settings

A name that ends in .onnx, .pt2 or .safetensors is one file: the graph, or the weights, of f* where
there is one, else of f_T. Logits of f_T are sums of products of whole numbers (in units of 2^-18)
and exact weights.
"""

import importlib.util
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import scroll
from scroll.embedding.images import check_images
from scroll.embedding.side_by_side import check_single
from scroll.ground.archive import check_target, new_part, plain, sha256, write_errors
from scroll.ground.arguments import instance, not_installed, shown, whole
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID_BITS, little_endian
from scroll.heads.discriminants import form_bits
from scroll.learners.learner import Scroll
from scroll.sums.lift import cosine_table

CERTIFICATE = 'certificate.json'
FORMAT = 'scroll-model-1'
_NEEDS = {
    'safetensors': ('safetensors',),
    'torch': ('torch',),
    'onnx': ('torch', 'onnx', 'onnxscript'),
}
FORMATS = tuple(_NEEDS)
_ENDINGS = {'.safetensors': 'safetensors', '.pt2': 'torch', '.onnx': 'onnx'}
_UNIT = 'u = round(2^18 x / |x|) / 2^18; x in float32, below 2^-126 in size as 0'
_LIFTED = {
    'relu': 'h = [u, max(0, floor(u matrix / 2^s))], 2^s the least power of two above sqrt(d)',
    'square': 'h = [u, min(floor((u matrix)^2 / 2^21), 2^18)]',
    'fourier': 'h = [u, table[angles]], angles = u matrix turns + offsets, in turns',
}


def check_export(out, formats, embedder=None) -> tuple[Path, Sequence[str], str]:
    """Return a target's path after all links, its formats, and its ending if it is one file, else
    ''. InputError unless it can be written whole: a folder is new, or empty; or for an unknown
    format, one whose packages are not installed, or that is not a file's, or not the embedder's.
    """
    ending = Path(os.fspath(out)).suffix.lower()
    ending = ending if ending in _ENDINGS else ''
    usual = _ENDINGS.get(ending, 'safetensors')
    formats = [usual] if formats is None else formats
    if not isinstance(formats, (tuple, list)) or not formats or not {*formats} <= {*FORMATS}:
        raise InputError(f'formats {shown(formats)}: expected some of {", ".join(FORMATS)}')
    if ending and list(formats) != [usual]:
        raise InputError(
            f'{out}: this file is of the format {usual}, and formats are '
            f'{", ".join(formats)}: give a folder'
        )
    for package in sorted({package for name in formats for package in _NEEDS[name]}):
        if importlib.util.find_spec(package) is None:
            raise not_installed('export', package, 'export')
    if ending == '.safetensors' and getattr(embedder, 'dtype', '') == 'integer':
        raise InputError(
            f'{out}: the weights of an integer backbone are a file more: give a folder'
        )
    if os.fspath(out) == '-':
        raise InputError('- is standard output: expected a folder (one of this name is ./-)')
    path = Path(os.path.realpath(out))
    if not ending and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(f'{path} is there already: give a folder that is new')
    check_target(path, folder=not ending)
    return path, formats, ending


def export(learner, out, formats=None, image_shape=None, names=None) -> None:
    """Write f_T, and f* where `adapt` was called since, whole or not at all.

    Args:
        learner: a `Scroll` or `ScrollClassifier`.
        out: a new folder; or a file of f*, else of f_T, whose ending says its format.
        formats: some of `FORMATS`; None: the file's, in a folder safetensors.
        image_shape: (H, W, C), or (H, W), of the images that graphs take; None: the size that the
            backbone works at.
        names: (K,) names of the classes, for the certificate.

    InputError: nothing was learned, `out` is a folder that is there or cannot be written, or there
    can be no such graph or file."""
    learner = learner.learner_ if hasattr(type(learner), 'learner_') else learner
    instance('learner', learner, Scroll)
    learner.check_portable()
    embedder = learner.embedder
    path, formats, ending = check_export(out, formats, embedder)
    check_single(embedder, 'an export')
    if names is not None and len(names) != len(learner.classes_):
        raise InputError(
            f'{len(names)} names: expected one of each of {len(learner.classes_)} classes'
        )
    predictors: dict[str, Any] = {'f_T': learner.predictor()}
    if learner.adapted_ is not None:
        predictors['f_star'] = learner.adapted_
    if ending:
        predictors = dict([predictors.popitem()])  # what predicts
    example = np.ones((2, learner.n_features_in_), np.float32)
    if embedder is not None:
        shape = image_shape or (embedder.preprocessing.input_size,) * 2 + (3,)
        instance('image_shape', shape, Sequence)
        for size in shape:
            whole('image_shape', size, 1)
        example = check_images(np.ones((2, *shape), np.uint8), 'image_shape')
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch, new_part(path, folder=not ending) as part:
            folder = Path(scratch) if ending else part
            for name, predictor in predictors.items():
                _write(folder, name, predictor, embedder, formats, example)
            if ending:
                shutil.copyfile(folder / f'{name}{ending}', part)
                return
            facts = _certificate(learner, predictors, names)
            facts['files'] = {file.name: sha256(file) for file in sorted(part.iterdir())}
            (part / CERTIFICATE).write_text(f'{_json(facts)}\n', encoding='utf-8')


def _json(facts: dict) -> str:
    return json.dumps(facts, indent=1, default=plain)


def _certificate(learner, predictors: dict, names) -> dict:
    """Return the certificate, without the digests of files."""
    params = learner.get_params()
    statistics = learner.statistics_
    embedder = params.pop('embedder')
    if params['adaptation'] is not None:
        params['adaptation'] = asdict(params['adaptation'])
    facts = {
        'format': FORMAT,
        'anywhere': {'statistics': learner.digest(), 'f_T': predictors['f_T'].digest()},
    }
    if embedder is not None:
        facts['anywhere'] = {'backbone': embedder.psi_digest} | facts['anywhere']
        facts['embedder'] = dict(
            digest=embedder.digest, arithmetic=embedder.dtype, **asdict(embedder.preprocessing)
        )
        from scroll.embedding.wide import WideNetwork

        net = embedder.pristine
        if isinstance(net, WideNetwork):
            facts['embedder'] |= {'stages': net.stages, 'mirror': net.mirror}
    if 'f_star' in predictors:
        f_star = predictors['f_star']
        if f_star.exact:
            facts['anywhere']['f*'] = f_star.digest()
        else:
            facts['here'] = {'machine': f_star.made_on, 'f*': f_star.digest()}
    return facts | {
        'samples': statistics.total,
        'dim': learner.n_features_in_,
        'classes': statistics.classes.tolist(),
        'counts': statistics.counts.tolist(),
        'names': None if names is None else list(map(str, names)),
        'settings': params,
        'ridge_lambda': learner.ridge_lambda_,
        'versions': {
            'python': platform.python_version(),
            'scroll': scroll.__version__,
            'numpy': np.__version__,
        },
    }


def _write(folder: Path, name: str, predictor, embedder, formats, example: np.ndarray) -> None:
    """Write graphs; weights, exact, and the backbone: as given for f_T, for f* with adapters and
    norms folded."""
    embedder = getattr(predictor, 'embedder', embedder)  # f* has its own
    arrays, formula = _head(predictor)
    about = _json(
        {
            'format': 'scroll-predictor-1',
            'predictor': name,
            'digest': predictor.digest(),
            'classes': predictor.classes.tolist(),
            'formula': formula,
        }
    )
    if set(formats) != {'safetensors'}:
        from scroll.exports.graphs import write_graphs

        write_graphs(folder, name, predictor, embedder, example, formats, about)
    if 'safetensors' not in formats:
        return
    from safetensors.numpy import save_file

    tensors = {f'head.{key}': little_endian(array) for key, array in arrays.items()}
    if embedder is not None and embedder.dtype == 'integer':
        embedder.net.save(folder / 'backbone.integer.npz', {'psi': embedder.psi_digest})
    elif embedder is not None:
        tensors |= {
            f'backbone.{key}': little_endian(tensor.detach().cpu().numpy())
            for key, tensor in embedder.pristine.state_dict().items()
            if not key.startswith('classifier.')
        }
    save_file(tensors, folder / f'{name}.safetensors', metadata={'about': about})
    (folder / f'{name}.json').write_text(f'{about}\n', encoding='utf-8')


def _head(predictor) -> tuple[dict, str]:
    """Return arrays by name, and the formula of the logits in them."""
    f_star = hasattr(predictor, 'scale')
    unit = 'u = x / |x|' if f_star else _UNIT
    if hasattr(predictor, 'means'):  # of qda
        size = predictor.forms.shape[1]
        rows, columns = np.triu_indices(size)
        dtype = np.int32 if form_bits(size) < 31 else np.int64  # a quarter of the forms, and exact
        forms = predictor.forms[:, rows, columns].astype(dtype)
        arrays = {'means': predictor.means, 'forms': forms}
        formula = (
            'logits_c = -(h - means_c)^T P_c (h - means_c) '
            f'2^{predictor.exponent - 2 * GRID_BITS}, h and means in units of 2^-18; '
            'P_c is symmetric, forms_c its upper triangle, row after row'
        )
    else:
        arrays = {'weight': predictor.weight, 'bias': predictor.bias}
        formula = 'logits = h weight^T + bias'
    if f_star:
        arrays['scale'] = np.float64(predictor.scale)
        formula += ', times scale'
        if predictor.forms is not None:
            arrays['forms'] = predictor.forms
            formula += ', less scale h^T forms h'
    lift = predictor.lift
    if lift is None:
        return arrays, f'{formula}; h = u; {unit}'
    arrays['matrix'] = lift.matrix
    if lift.kind == 'fourier':
        turn = 2.0 ** -(GRID_BITS + lift.TURN_BITS)
        arrays |= {
            'offsets': lift.offsets * turn,
            'table': cosine_table(),
            'turns': np.float64(lift.turns * 2.0**-lift.TURN_BITS),
        }
    return arrays, f'{formula}; {_LIFTED[lift.kind]}, in units of 2^-18; {unit}'
