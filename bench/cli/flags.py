"""The groups of flags that runs have, each with what it affects where that is not the result
(`AFFECTS` in `core.arguments`). Nothing here imports torch.
"""

import argparse
from functools import partial

from core.arguments import (
    argument_group,
    binary_to_boolean_type,
    labelled,
    noise_type,
    real,
    share,
    whole,
)

# what `--help` shows of the flags that every run has; `--help_all` shows all
COMMON = {
    'h',
    'help',
    'help_all',
    'model',
    'dataset',
    'backbone',
    'weights',
    'model_config',
    'validation',
    'lr',
    'batch_size',
    'n_epochs',
    'seed',
    'base_path',
    'device',
    'eval_every',
    'resume',
    'savecheck',
    'loadcheck',
    'explain',
}
OFF = {'type': binary_to_boolean_type, 'default': False}
BARE = OFF | {'nargs': '?', 'const': True}  # `--flag` alone is on
OPTIMISERS = ('sgd', 'adam', 'adamw')


def add_selection_args(parser) -> None:
    """Flags for what to run: model, data set, backbone, weights and their configs."""
    flag = argument_group(
        parser, 'what to run', 'example: --model er --dataset seq-cifar10 --weights compact'
    ).add_argument
    flag('--model', required=True, help='method; main.py --help names all')
    flag('--dataset', required=True, help='data set; main.py --help names all')
    flag('--backbone', help='architecture, untrained unless --weights are given')
    flag(
        '--num_classes',
        affects='run',
        type=whole(1, 10**6),
        default=argparse.SUPPRESS,
        help='outputs of the network (default: one for each class)',
    )
    flag(
        '--weights',
        affects='content',
        help="pre-trained backbone: a shipped name, a file, 'none' to start from scratch, a "
        'published checkpoint (url-resnet18, rfs-resnet12, byol-resnet50; the error says where to '
        'get it), or any image network of timm (timm:vit_small_patch16_224; with ,random=SEED '
        'behind it) (default: compact; none where a backbone is asked for)',
    )
    flag(
        '--mammoth',
        affects='place',
        metavar='PATH',
        default=argparse.SUPPRESS,
        help='a checkout of Mammoth: helper modules that files written for it import, and that '
        'this project does not have, are taken from there (default: the variable MAMMOTH_PATH)',
    )
    flag(
        '--mammoth_defaults',
        affects='run',
        type=binary_to_boolean_type,
        default=argparse.SUPPRESS,
        help="1: Mammoth's defaults where ours differ, named by a run (default: variable "
        'MAMMOTH_DEFAULTS)',
    )
    flag(
        '--model_config',
        affects='run',
        metavar='SECTION',
        help='which values of models/config/<model>.yaml to take: default, and with best or '
        'the name of another section its own; base: none',
    )
    flag(
        '--load_best_args',
        dest='model_config',
        action='store_const',
        const='best',
        help="Mammoth's name of --model_config best",
    )
    flag(
        '--explain',
        affects='display',
        action='store_true',
        default=argparse.SUPPRESS,
        help='show the value of each flag and where it comes from, and exit',
    )
    flag('--dataset_config', help='name of a file in datasets/configs/<dataset>/')


def add_experiment_args(parser) -> None:
    """How gradient-based methods train."""
    flag = argument_group(parser, 'training', 'example: --lr 0.03 --n_epochs 5').add_argument
    flag(
        '--lr',
        type=real(0),
        required=True,
        help='learning rate; needless where method or config has one',
    )
    flag('--batch_size', type=whole(1, 10**9), help='samples a loader batch')
    flag('--n_epochs', type=whole(0, 10**6), help='passes over each task')
    flag(
        '--batch_iterations',
        type=whole(1, 10**6),
        default=1,
        help='updates on each loader batch, each with a new draw from the buffer',
    )
    flag('--optimizer', choices=OPTIMISERS, default='sgd')
    flag('--optim_wd', type=real(0), default=0.0, help='weight decay')
    flag('--optim_mom', type=real(0), default=0.0, help='momentum (sgd)')
    flag('--optim_nesterov', **OFF, help='Nesterov momentum (sgd)')
    flag('--drop_last', **OFF, help='drop incomplete training batches')
    flag('--lr_scheduler', choices=('multisteplr', 'cosine'), help='of each task')
    flag(
        '--scheduler_mode',
        choices=('epoch', 'iter'),
        default='epoch',
        help='when the scheduler steps',
    )
    flag(
        '--lr_milestones',
        type=whole(1),
        nargs='+',
        default=[],
        help='steps at which multisteplr decays',
    )
    flag('--sched_multistep_lr_gamma', type=real(0), default=0.1, help='factor of multisteplr')
    flag(
        '--bn',
        choices=('train', 'frozen'),
        default='train',
        help='batch norms: statistics of the batch, or those that the network came with',
    )


def add_stream_args(parser) -> None:
    """Flags that change the data of any data set."""
    flag = argument_group(
        parser, 'data', 'example: --validation 10 --validation_by key'
    ).add_argument
    flag(
        '--joint',
        affects='stream',
        type=int,
        choices=(0, 1),
        default=0,
        help='all classes as one task',
    )
    flag('--custom_class_order', help='the classes in order of arrival, joined by - or ,')
    flag(
        '--custom_task_order',
        affects='stream',
        help='the tasks in order of arrival, joined by - or ,',
    )
    flag(
        '--validation',
        type=real(0),
        nargs='?',
        const=10.0,
        default=0.0,
        help='percent of each class held out from training, and evaluated on in place of '
        'the test set',
    )
    flag(
        '--validation_by',
        choices=('seed', 'key'),
        default='seed',
        help='which samples: drawn by the seed, or those whose key, a digest of the pixels, says '
        'so: the same under every seed',
    )
    flag(
        '--validation_mode',
        affects='stream',
        choices=('current', 'complete'),
        default='current',
        help='complete: held-out samples of all classes so far',
    )
    flag(
        '--label_perc',
        '--label_perc_by_task',
        '--lpt',
        affects='stream',
        type=labelled,
        default=1.0,
        help='share of labelled samples of each task, the same number of each class; the '
        'others have label -1',
    )
    flag(
        '--label_perc_by_class',
        '--lpc',
        affects='stream',
        type=labelled,
        default=1.0,
        help='share of labelled samples of each class',
    )
    flag(
        '--noise_type',
        type=noise_type,
        choices=('symmetric', 'asymmetric'),
        default='symmetric',
        help='how wrong labels are drawn',
    )
    flag('--noise_rate', type=share, default=0.0, help='share of wrong labels')
    flag(
        '--disable_noisy_labels_cache',
        affects='speed',
        **OFF,
        help='no effect: wrong labels are drawn from the seed, not kept in files',
    )
    flag('--cache_path_noisy_labels', affects='place', default='noisy_labels', help='no effect')
    flag(
        '--num_workers',
        affects='speed',
        type=whole(0, 256),
        default=0,
        help='processes that load the data of third-party data sets',
    )


def add_fitting_args(parser) -> None:
    """How long a task is trained."""
    flag = argument_group(parser, 'how long').add_argument
    flag(
        '--fitting_mode',
        choices=('epochs', 'iters', 'early_stopping'),
        default='epochs',
        help='until n_epochs, n_iters, or no improvement on the newest task',
    )
    flag('--n_iters', type=whole(1), help='batches a task (--fitting_mode iters)')
    flag(
        '--early_stopping_patience',
        type=whole(1),
        default=5,
        help='evaluations without improvement',
    )
    flag('--early_stopping_metric', choices=('loss', 'accuracy'), default='loss')
    flag('--early_stopping_freq', type=whole(1), default=1, help='epochs between evaluations')
    flag(
        '--early_stopping_epsilon',
        type=real(0),
        default=1e-6,
        help='smallest improvement that counts',
    )
    flag(
        '--start_from',
        affects='part',
        type=whole(0),
        help='first task that is trained, from 0; earlier ones only begin and end',
    )
    flag('--stop_after', affects='part', type=whole(1), help='number of the last task')
    flag('--inference_only', affects='part', **OFF, help='train nothing, evaluate')
    flag('--debug_mode', affects='part', **OFF, help='a few batches of each pass and evaluation')


def add_checkpoint_args(parser) -> None:
    """Checkpoint and saved-model flags."""
    group = argument_group(parser, 'checkpoints', 'example: --savecheck last --ckpt_name mine')
    flag = partial(group.add_argument, affects='place')
    flag(
        '--checkpoint_every',
        type=real(0),
        default=5.0,
        help='minutes between checkpoints from which the same command continues an '
        'interrupted run; 0: none',
    )
    flag(
        '--resume',
        choices=('auto', 'always', 'never'),
        default='auto',
        help='continue an interrupted run with the same arguments; '
        'always: even if code, weights or data have changed',
    )
    flag(
        '--save_after_interrupt',
        type=binary_to_boolean_type,
        default=True,
        help='on Ctrl-C and SIGTERM finish the step and write a checkpoint; 0: end at once',
    )
    flag(
        '--savecheck',
        choices=('last', 'task'),
        help='keep the model as a file: after the last task, or each',
    )
    flag('--save_checkpoint_mode', choices=('safe',), default='safe', help='of such files')
    flag('--ckpt_name', type=str, help='how the names of these files begin')
    flag('--checkpoint_path', default='./checkpoints/', help='folder of these files')
    flag(
        '--loadcheck',
        affects='content',
        help='begin with the model in such a file; with --start_from, continue its run',
    )


def add_management_args(parser) -> None:
    """Seeds, folders, device, what is written and shown."""
    flag = argument_group(
        parser, 'management', 'example: --seed 3 --device cpu --notes second'
    ).add_argument
    flag('--seed', type=whole(0, 2**63 - 1), default=0, help='every random stream derives from it')
    flag('--permute_classes', **OFF, help='rename the classes at random')
    flag('--base_path', affects='place', default='./data/', help='data sets, results and caches')
    flag('--results_path', affects='place', default='results/', help='below base_path')
    flag(
        '--device',
        affects='speed',
        help="'cpu', 'cuda' or the number of a GPU "
        '(default: the GPU with most free memory, if there is one)',
    )
    flag('--notes', type=str, affects='display', help='free text, kept in the results')
    flag('--eval_epochs', affects='record', type=whole(1), help='also evaluate every N epochs')
    flag(
        '--eval_every',
        affects='record',
        type=whole(1),
        help='also evaluate every N samples of the stream, on the classes that have come '
        '(anytime accuracy)',
    )
    flag(
        '--prequential',
        affects='record',
        **OFF,
        help=(
            'predict each batch before it is learned; costs a forward pass, of scroll also a solve'
        ),
    )
    flag(
        '--enable_other_metrics',
        affects='record',
        **OFF,
        help='forward and backward transfer, forgetting',
    )
    flag(
        '--non_verbose',
        affects='display',
        **BARE,
        help='no progress: no bar on a terminal, no lines elsewhere',
    )
    flag('--disable_log', affects='place', **OFF, help='write no results files')
    flag(
        '--picture',
        affects='display',
        type=binary_to_boolean_type,
        default=True,
        help='draw the accuracy of each task after each task, next to the results file',
    )
    flag(
        '--num_threads',
        affects='speed',
        type=whole(1, 1024),
        help='CPU threads (default: torch decides)',
    )
    flag(
        '-O',
        '--code_optimization',
        type=int,
        choices=(0, 1, 2, 3),
        default=0,
        help='1: TF32, 2: bfloat16 products, 3: also torch.compile',
    )
    flag(
        '--precision',
        choices=('float32', 'bfloat16', 'auto'),
        default='float32',
        help='of products in networks that are trained: the methods, and f* of scroll (default: '
        'auto); batch norms, losses and optimisers stay in float32; auto: bfloat16 where the '
        'machine has units for it',
    )
    flag('--distributed', affects='speed', choices=('no',), default='no', help='no effect')
    flag('--nowand', affects='display', help='no effect: there is no tracker', **BARE)
    flag('--force_compat', help='let a task-aware method run on a stream without tasks', **BARE)
