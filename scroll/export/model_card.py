"""The model card of an export: Markdown with the certificate in it."""
_BEGIN = '''---
library_name: scroll-cl
tags: [{}continual-learning, scroll]
---
'''
_USE = {'torch': '''```python
import json
import numpy as np
import torch

about = json.load(open('certificate.json'))
module = torch.export.load('{name}.pt2').module()
X = np.zeros((3, {sizes}), np.{dtype})                      # your samples
logits, label = module(torch.from_numpy(X))
print([about['classes'][i] for i in label])
```
''', 'onnx': '''```python
import json
import numpy as np
import onnxruntime

about = json.load(open('certificate.json'))
session = onnxruntime.InferenceSession('{name}.onnx')
X = np.zeros((3, {sizes}), np.{dtype})                      # your samples
logits, label = session.run(None, dict(X=X))
print([about['classes'][i] for i in label])
```
'''}
_EXACT = ('Logits of f_T are sums of whole numbers, none of which is rounded, and the label is that of the '
          'largest exact one: graphs give the logits and labels of the library to the last bit. Only where a '
          'quotient lies so near to the middle between two numbers of the grid that float64 cannot tell its '
          'side (of 512 features, fewer than one number in 10^7) may one be a unit of 2^-18 off.')
_FLOATS = ('The backbone works in {}: its features agree up to rounding, which depends on batch, machine and '
           'runtime; labels differ at most where two logits are nearly equal. What follows from features is '
           'exact.')


def card(facts: dict, files: list) -> str:
    """Markdown, of a certificate (`scroll.export.folders`) and the names of the files beside it."""
    settings = ', '.join(f'{name}={value!r}' for name, value in facts['settings'].items()
                         if name != 'adaptation')
    images, adapted = 'embedder' in facts, 'here' in facts
    what = 'images' if images else f'vectors of {facts["dim"]} features'
    again = facts['command']
    if not (again or images):
        again = 'python -m scroll learn DATA -o again.npz            # the same samples'
    lines = [_BEGIN.format('image-classification, ' * images),
             f'# SCROLL on {what}, {len(facts["classes"])} classes', '',
             f'Learned from {facts["samples"]:,} samples by exact integer sums: the same predictor, to the '
             'last bit, whatever the order, batches or shares in which they came. f_T follows from the sums'
             + ('; f* was adapted from it on the samples of its buffer.' if adapted else '.'), '',
             '## Certificate', '', '| | SHA-256, or value |', '|---|---|']
    lines += [f'| {name} | `{value}` |' for name, value in _certified(facts)]
    lines += ['', '## To check it', '', '```bash',
              'python -m scroll check .                            # files are those of certificate.json',
              *([again] if again else []),
              'python -m scroll check . --state again.npz          # f_T follows from these sums', '```', '',
              '## What is equal', '', _equal(facts), '', '## To use it', '']
    names = ['f_T', 'f_star'] if adapted else ['f_T']
    for name in names[-1:]:
        for kind, ending in (('torch', 'pt2'), ('onnx', 'onnx')):
            if f'{name}.{ending}' in files:
                sizes = ', '.join(map(str, facts['input']['shape'][1:]))
                lines += [_USE[kind].format(name=name, sizes=sizes, dtype=facts['input']['dtype'])]
    if 'f_T.safetensors' in files:
        lines += ['Weights are in `*.safetensors`, what they are for in `*.json`.', '']
    lines += ['## Settings', '', f'{settings}.', '', '## Classes', '',
              '| class | samples |' if facts['names'] is None else '| class | name | samples |',
              '|---|---|' if facts['names'] is None else '|---|---|---|']
    columns = [facts['classes'], *([facts['names']] if facts['names'] else []), facts['counts']]
    lines += ['| ' + ' | '.join(map(_cell, row)) + ' |' for row in zip(*columns)]
    return '\n'.join(lines) + '\n'


def _certified(facts: dict) -> list:
    rows = list(facts['anywhere'].items())
    if 'embedder' in facts:
        embedder = facts['embedder']
        rows += [('embedder', embedder['digest']), ('arithmetic of the backbone', embedder['arithmetic']),
                 ('pixels, mean, standard deviation',
                  f"{embedder['input_size']}, {embedder['mean']}, {embedder['std']}")]
    if 'here' in facts:
        rows += [('f*', facts['here']['f*']), ('made on', facts['here']['machine'])]
    if facts['ridge_lambda'] is not None:
        rows.append(('lambda', repr(facts['ridge_lambda'])))
    return [*rows, ('versions', ', '.join(' '.join(pair) for pair in facts['versions'].items()))]


def _equal(facts: dict) -> str:
    """What can be relied on, in sentences."""
    arithmetic = facts.get('embedder', {}).get('arithmetic')
    said = [_EXACT]
    if arithmetic == 'integer':
        said = ['The backbone works in integers, the same on every machine.', _EXACT]
    elif arithmetic:
        said = [_FLOATS.format(arithmetic)]
    if 'here' in facts:
        said.append('f* works in floating point: logits agree up to rounding, and labels but where two '
                    'logits are equal up to it.')
    return ' '.join(said)


def _cell(value) -> str:
    """A text in a table."""
    text = str(value) if str(value).isprintable() else repr(value)
    return text.replace('\\', '\\\\').replace('|', '\\|').replace('<', '&lt;').replace('`', '\\`')
