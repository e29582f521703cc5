"""The bench from a script or a notebook: keyword arguments, a run, its row.

    from bench import load_runner, train

    flags = {'buffer_size': 200, 'lr': 0.03, 'backbone': 'reduced-resnet18'}
    model, dataset = load_runner('er', 'seq-digits', **flags)
    row = train(model, dataset)
    print(row['final_accuracy'], row['weights'], model.net)

Keyword arguments are the flags of `main.py`, with their defaults, config files and checks; what is
wrong is a `scroll.InputError` of one line. Classes of a notebook are found once they are registered
(`@register_model('mine')`). Importing this imports no torch: what `_FROM` names is imported when
asked for.
"""

from core.plugins import names_of

_FROM = {  # name -> where it is; those that Mammoth has at the top of its package
    name: module
    for module, names in {
        'models': 'register_model get_model_names get_model_class ContinualModel',
        'datasets': 'register_dataset get_dataset_names get_dataset_class get_dataset_config_names '
        'ContinualDataset',
        'backbone': 'register_backbone get_backbone_names MammothBackbone ReturnTypes',
        'core.environment': 'base_path get_device',
        'utils.buffer': 'Buffer',
        'core.arguments': 'add_rehearsal_args',
        'datasets.utils': 'set_default_from_args',
        'datasets.utils.continual_dataset': 'store_masked_loaders',
    }.items()
    for name in names.split()
}
__all__ = ('load_runner', 'train', 'get_avail_args', *_FROM)
__getattr__ = names_of(__name__, **_FROM)


def load_runner(model: str, dataset: str, args: dict | None = None, **flags) -> tuple:
    """(method, data set) of a run, ready for `train`; the backbone is the method's `net`.

    model, dataset: names, as `--model` and `--dataset` take them. args, flags: flag -> value; None
    is one that is not given, a list one with several words.

    InputError: what `main.py` would refuse."""
    from bench.cli.parsing import parse_args
    from bench.run.building import initialize

    return initialize(
        parse_args(flag_words(model=model, dataset=dataset, **(args or {}), **flags))
    )[:2]


def train(model, dataset, args=None) -> dict:
    """Run the whole stream: the results row, which is also written unless `disable_log` is set.
    args: of the run; by default those of `load_runner`."""
    from bench.run.training import train as run
    from scroll.ground.errors import InputError

    if dataset.c_task >= 0:
        raise InputError('this stream has begun already: make a new one with load_runner')
    return run(model, dataset, dataset.args if args is None else args)


def get_avail_args(dataset: str, model: str, **flags) -> tuple:
    """(required, optional) flags of such a run: name -> dict of `default`, `choices`,
    `description`.
    """
    from bench.cli.parsing import parse_args

    parser = parse_args(flag_words(model=model, dataset=dataset, **flags), return_parser_only=True)
    required = {}
    optional = {}
    for action in parser._actions:
        if action.dest not in ('help', 'help_all', 'explain', 'model', 'dataset'):
            about = {
                'default': parser.get_default(action.dest),
                'choices': action.choices,
                'description': action.help,
            }
            (required if action.required else optional).setdefault(action.dest, about)
    return required, optional


def flag_words(**flags) -> list:
    """lr=0.1, drop_last=True -> ['--lr', '0.1', '--drop_last', '1']."""
    words = []
    for name, value in flags.items():
        if value is not None:
            values = value if isinstance(value, (list, tuple)) else [value]
            words += [f'--{name}', *(str(int(v) if isinstance(v, bool) else v) for v in values)]
    return words
