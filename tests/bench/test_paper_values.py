"""Effective values of each method with the paper's backbones in place, compared with its appendix
and its authors' public code.
"""

import pytest

from backbone import weight_files
from bench.cli.parsing import parse_args
from tests.backbone.test_checkpoints import byol_content, rfs_content, saved, url_content

URL = 'url-resnet18'
RFS = 'rfs-resnet12'
BYOL = 'byol-resnet50'
OFFLINE = {'optimizer': 'sgd', 'optim_mom': 0, 'optim_wd': 0, 'batch_size': 32, 'n_epochs': 50}
ONLINE = OFFLINE | {'n_epochs': 1}
TEN = OFFLINE | {'n_epochs': 10}
TWENTY = OFFLINE | {'n_epochs': 20}
GDUMB = {'minlr': 5e-4, 'cutmix_alpha': 0, 'sampler': 'reservoir'}
GDUMB_ON_CIFAR = GDUMB | {
    'maxlr': 0.05,
    'fitting_epochs': 20,
    'fitting_batch_size': 16,
    'optim_mom': 0.9,
    'optim_wd': 1e-6,
}
GDUMB_ON_MINI = GDUMB | {'maxlr': 0.03, 'fitting_batch_size': 32, 'optim_mom': 0, 'optim_wd': 0}
CODE = {
    'adapt_lr': 0.003,
    'classifier_lr': 0.5,
    'ridge_lambda': 0.001,
    'scale': 1,
    'calibrate_scale': False,
    'minibatch_size': 50,
    'scale_lr': 1,
    'adaptation': 'auto',
    'adaptation_threshold': 500,
    'learn_scale': 'auto',
    'adapt_jitter': 0,
    'adapt_prior': 0,
    'adapt_averaging': False,
    'ridge_targets': 'pm1',
}
CODE_FULL = CODE | {'adapt_lr': 0.01, 'ridge_lambda': 0.01, 'scale': 5, 'iterations': 2500}
ENS = {
    'lr': 1e-4,
    'n_classifiers': 1024,
    'top_k': 32,
    'tau': 250,
    'batch_size': 60,
    'keys': 'normal',
    'n_epochs': 1,
}
C10 = 'seq-cifar10'
C100 = 'seq-cifar100'
MINI = 'seq-miniimg'
STREAMS = (C10, 5), (C10, 10), (C100, 10), (C100, 50)
VALUES = [  # model, data set, splits, |M|, values
    *(
        (model, data, splits, 500, OFFLINE | {'lr': 0.01})
        for model in ('er', 'bic')
        for data, splits in STREAMS
    ),
    *(
        (model, C10, splits, size, OFFLINE | {'lr': 0.01, 'alpha': alpha} | more)
        for model, more in (('der', {}), ('derpp', {'beta': 0.5}))
        for splits, size, alpha in ((5, 200, 0.5), (5, 500, 0.5), (10, 2000, 1))
    ),
    *(
        (model, C100, splits, 500, OFFLINE | {'lr': rate, 'alpha': 0.5} | more)
        for model, more in (('der', {}), ('derpp', {'beta': 0.5}))
        for splits, rate in ((10, 0.01), (50, 0.03))
    ),
    *(('gdumb', data, splits, 500, GDUMB_ON_CIFAR) for data, splits in STREAMS),
    *(
        (model, data, splits, 500, ONLINE | {'lr': 0.01} | more)
        for model, more in (
            ('er-ace', {}),
            ('er-aml', {'supcon_temperature': 0.2}),
            ('ssil', {'distill_coef': 1}),
            ('mir', {'subsample': 50}),
        )
        for data, splits in (*STREAMS, (MINI, 10))
    ),
    *(
        (model, MINI, 10, size, passes | {'lr': 0.01})
        for model in ('er', 'bic')
        for size, passes in ((200, TEN), (500, TWENTY))
    ),
    ('der', MINI, 10, 200, TEN | {'lr': 0.03, 'alpha': 1}),
    ('der', MINI, 10, 500, TWENTY | {'lr': 0.05, 'alpha': 1}),
    ('derpp', MINI, 10, 200, TEN | {'lr': 0.03, 'alpha': 1, 'beta': 1}),
    ('derpp', MINI, 10, 500, TWENTY | {'lr': 0.05, 'alpha': 0.5, 'beta': 1}),
    ('gdumb', MINI, 10, 200, GDUMB_ON_MINI | {'fitting_epochs': 10}),
    ('gdumb', MINI, 10, 500, GDUMB_ON_MINI | {'fitting_epochs': 20}),
    *(
        ('scroll', *stream, size, values)
        for stream, size, values in zip(
            STREAMS,
            (0, 200, 500, 2000),
            (
                {'ridge_lambda': 0.001},
                CODE | {'iterations': 350},
                CODE | {'iterations': 1200},
                CODE_FULL,
            ),
        )
    ),
    *(
        ('scroll', MINI, 10, size, CODE | {'iterations': 300, 'adapt_jitter': 0.4})
        for size in (200, 500)
    ),
]
OF_BYOL = [
    (model, data, splits, 0, values)
    for data, splits in ((C10, 5), (C10, 10), (C100, 20), (C100, 100))
    for model, values in (('ens', ENS), ('scroll', {'ridge_lambda': 0.001}))
]


@pytest.fixture(scope='module', autouse=True)
def in_place(tmp_path_factory):
    """The paper's checkpoints where they are looked for, in small."""
    folder = tmp_path_factory.mktemp('weights')
    for name, content in ((URL, url_content), (RFS, rfs_content), (BYOL, byol_content)):
        saved(folder / weight_files.PUBLISHED[name][0], content())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight_files, 'SHIPPED', folder)
        yield


@pytest.mark.parametrize(
    'weights, rows',
    [
        (URL, [row for row in VALUES if row[1] != MINI]),
        (RFS, [row for row in VALUES if row[1] == MINI]),
        (BYOL, OF_BYOL),
    ],
    ids=[URL, RFS, BYOL],
)
def test_values_are_those_of_the_paper(weights, rows):
    for model, dataset, splits, size, expected in rows:
        words = (
            f'--model {model} --dataset {dataset} --n_splits {splits} --weights {weights} '
            f'--model_config {"paper" if model == "scroll" else "best"} '
            f'{"" if model == "ens" else f"--buffer_size {size}"}'
        )
        args = vars(parse_args(words.split()))
        assert {name: args[name] for name in expected} == expected, words
