"""The groups of flags that runs have. Nothing here imports torch."""
import argparse

from bench.core.arguments import binary_to_boolean_type, labelled, negated, noise_type, real, share, whole

OPTIMISERS = ('sgd', 'adam', 'adamw')


def add_selection_args(parser) -> None:
    """What to run: model, data set, backbone, weights and their configs."""
    group = parser.add_argument_group('what to run')
    group.add_argument('--model', required=True, help='method; see the end of --help')
    group.add_argument('--dataset', required=True, help='data set; see the end of --help')
    group.add_argument('--backbone',
                       help='architecture; from scratch, unless --weights are given (default: that of psi)')
    group.add_argument('--num_classes', type=whole(1, 10 ** 6), default=argparse.SUPPRESS,
                       help='outputs of the network (default: one for each class)')
    group.add_argument('--weights', help="pre-trained psi: a shipped name, a file, 'none' to start from scratch, a published "
                                         'checkpoint (url-resnet18, sdl-resnet18, rfs-resnet12, byol-resnet50; the error says '
                                         "where to get it), or torchvision's (ResNet18_Weights.IMAGENET1K_V1)"
                                         ' (default: compact; none where a backbone is asked for)')
    group.add_argument('--model_config', metavar='{default,best,base,<section>}',
                       help='which values of models/config/<model>.yaml to take: default, and with best or '
                            'the name of another section its own; base: none')
    group.add_argument('--load_best_args', dest='model_config', action='store_const', const='best', default=argparse.SUPPRESS,
                       help='earlier name of --model_config best')
    group.add_argument('--dataset_config', help='name of a file in datasets/configs/<dataset>/')


def add_experiment_args(parser) -> None:
    """How gradient-based methods train."""
    group = parser.add_argument_group('training')
    group.add_argument('--lr', type=real(0), required=True, help='learning rate')
    group.add_argument('--batch_size', type=whole(1, 10 ** 9), help='samples a loader batch')
    group.add_argument('--n_epochs', type=whole(0, 10 ** 6), help='passes over each task')
    group.add_argument('--optimizer', choices=OPTIMISERS, default='sgd')
    group.add_argument('--optim_wd', type=real(0), default=0.0, help='weight decay')
    group.add_argument('--optim_mom', type=real(0), default=0.0, help='momentum (sgd)')
    group.add_argument('--optim_nesterov', type=binary_to_boolean_type, default=False, help='Nesterov momentum (sgd)')
    group.add_argument('--drop_last', type=binary_to_boolean_type, default=False, help='drop incomplete training batches')
    group.add_argument('--lr_scheduler', choices=('multisteplr', 'cosine'), help='of each task')
    group.add_argument('--scheduler_mode', choices=('epoch', 'iter'), default='epoch', help='when the scheduler steps')
    group.add_argument('--lr_milestones', type=whole(1), nargs='+', default=[], help='steps at which multisteplr decays')
    group.add_argument('--sched_multistep_lr_gamma', type=real(0), default=0.1, help='factor of multisteplr')
    group.add_argument('--bn', choices=('train', 'frozen'), default='train',
                       help='batch norms: statistics of the batch, or those that the network came with')


def add_stream_args(parser) -> None:
    """What flags do to the data of any data set."""
    group = parser.add_argument_group('data')
    group.add_argument('--joint', type=int, choices=(0, 1), default=0, help='all classes as one task')
    group.add_argument('--custom_class_order', help='the classes in order of arrival, joined by - or ,')
    group.add_argument('--custom_task_order', help='the tasks in order of arrival, joined by - or ,')
    group.add_argument('--validation', type=real(0), nargs='?', const=10.0, default=0.0,
                       help='percent of each class held out from training, and evaluated on in place of the test set')
    group.add_argument('--validation_mode', choices=('current', 'complete'), default='current',
                       help='complete: held-out samples of all classes so far')
    group.add_argument('--label_perc', '--label_perc_by_task', '--lpt', dest='label_perc', type=labelled, default=1.0,
                       help='share of labelled samples of each task; the others have label -1')
    group.add_argument('--label_perc_by_class', '--lpc', dest='label_perc_by_class', type=labelled, default=1.0,
                       help='share of labelled samples of each class')
    group.add_argument('--noise_type', type=noise_type, choices=('symmetric', 'asymmetric'), default='symmetric',
                       help='how wrong labels are drawn')
    group.add_argument('--noise_rate', type=share, default=0.0, help='share of wrong labels')
    group.add_argument('--disable_noisy_labels_cache', type=binary_to_boolean_type, default=False,
                       help='draw wrong labels anew instead of keeping them in a file')
    group.add_argument('--cache_path_noisy_labels', default='noisy_labels', help='below base_path')
    group.add_argument('--num_workers', type=whole(0, 256), default=0, help='processes that load data of foreign make')


def add_fitting_args(parser) -> None:
    """How long a task is trained."""
    group = parser.add_argument_group('how long')
    group.add_argument('--fitting_mode', choices=('epochs', 'iters', 'time', 'early_stopping'), default='epochs',
                       help='until n_epochs, n_iters, fitting_minutes, or no improvement on the newest task')
    group.add_argument('--n_iters', type=whole(1), help='batches a task (--fitting_mode iters)')
    group.add_argument('--fitting_minutes', type=real(positive=True), help='minutes a task (--fitting_mode time)')
    group.add_argument('--early_stopping_patience', type=whole(1), default=5, help='evaluations without improvement')
    group.add_argument('--early_stopping_metric', choices=('loss', 'accuracy'), default='loss')
    group.add_argument('--early_stopping_freq', type=whole(1), default=1, help='epochs between evaluations')
    group.add_argument('--early_stopping_epsilon', type=real(0), default=1e-6, help='smallest improvement that counts')
    group.add_argument('--start_from', type=whole(0), help='first task that is trained, from 0; earlier ones only begin and end')
    group.add_argument('--stop_after', type=whole(1), help='number of the last task')
    group.add_argument('--inference_only', type=binary_to_boolean_type, default=False, help='train nothing, evaluate')
    group.add_argument('--debug_mode', type=binary_to_boolean_type, default=False,
                       help='a few batches of each pass and evaluation, no Weights & Biases')
    group.add_argument('--eval_future', type=binary_to_boolean_type, default=False, help='evaluate on tasks to come, too')


def add_checkpoint_args(parser) -> None:
    """What of a run outlives it."""
    group = parser.add_argument_group('checkpoints')
    group.add_argument('--checkpoint_every', type=real(0), default=5.0,
                       help='minutes between checkpoints from which the same command continues an interrupted run; 0: none')
    group.add_argument('--resume', choices=('auto', 'always', 'never'), default='auto',
                       help='continue an interrupted run with the same arguments; always: even if code or weights have changed')
    group.add_argument('--save_after_interrupt', type=binary_to_boolean_type, default=True,
                       help='on Ctrl-C and SIGTERM finish the step and write a checkpoint; 0: end at once')
    group.add_argument('--savecheck', choices=('last', 'task'), help='keep the model as a file: after the last task, or each')
    group.add_argument('--save_checkpoint_mode', choices=('safe', 'old_pickle'), default='safe',
                       help='of such files; old_pickle, which holds code, can be read but is not written')
    group.add_argument('--ckpt_name', help='how the names of these files begin')
    group.add_argument('--checkpoint_path', default='./checkpoints/', help='folder of these files')
    group.add_argument('--loadcheck', help='begin with the model in such a file, or at such a URL; with '
                                           '--start_from, continue its run')


def add_tracking_args(parser) -> None:
    """Weights & Biases, TensorBoard, and what remains of earlier versions of Mammoth."""
    group = parser.add_argument_group('tracking')
    group.add_argument('--wandb_entity', help='with wandb_project: log to Weights & Biases')
    group.add_argument('--wandb_project')
    group.add_argument('--wandb_name', help='of the run')
    on_off = dict(type=binary_to_boolean_type, nargs='?', const=True)
    group.add_argument('--tensorboard', default=False, help='log to <results>/tensorboard', **on_off)
    group.add_argument('--nowand', default=False, help='no Weights & Biases, whatever else is said', **on_off)
    group.add_argument('--force_compat', default=False,
                       help='let a method that is to be told where tasks begin run on a stream without tasks', **on_off)
    reverse = dict(type=negated, nargs='?', const=False, default=argparse.SUPPRESS)
    group.add_argument('--ignore_other_metrics', dest='enable_other_metrics', help='reverse of --enable_other_metrics', **reverse)
    group.add_argument('--csv_log', dest='disable_log', help='reverse of --disable_log', **reverse)


def add_management_args(parser) -> None:
    """Seeds, folders, device, what is written and shown."""
    group = parser.add_argument_group('management')
    group.add_argument('--seed', type=whole(0, 2 ** 63 - 1), default=0, help='every random stream derives from it')
    group.add_argument('--permute_classes', type=binary_to_boolean_type, default=False, help='rename the classes at random')
    group.add_argument('--base_path', default='./data/', help='data sets, results and caches')
    group.add_argument('--results_path', default='results/', help='below base_path')
    group.add_argument('--device', help="'cpu', 'cuda' or the number of a GPU; with --distributed dp several, joined by commas "
                                         '(default: the GPU with most free memory, if there is one)')
    group.add_argument('--notes', help='free text, kept in the results')
    group.add_argument('--eval_epochs', type=whole(1), help='also evaluate every so many epochs')
    group.add_argument('--eval_every', type=whole(1),
                       help='also evaluate every so many samples of the stream, on the classes that have come (anytime accuracy)')
    group.add_argument('--enable_other_metrics', type=binary_to_boolean_type, default=False,
                       help='forward and backward transfer, forgetting')
    group.add_argument('--non_verbose', type=binary_to_boolean_type, nargs='?', const=True, default=False,
                       help='no progress: no bar on a terminal, no lines elsewhere')
    group.add_argument('--raw_accuracies', type=binary_to_boolean_type, default=False,
                       help="also print the accuracy on each task, after each task: Mammoth's second line")
    group.add_argument('--disable_log', type=binary_to_boolean_type, default=False, help='write no results files')
    group.add_argument('--num_threads', type=whole(1, 1024), help='CPU threads (default: torch decides)')
    group.add_argument('-O', '--code_optimization', type=int, choices=(0, 1, 2, 3), default=0,
                       help='1: TF32, 2: bfloat16 products, 3: also torch.compile')
    group.add_argument('--distributed', choices=('no', 'dp', 'ddp'), default='no',
                       help='dp: batches split among GPUs; ddp: scroll in several processes, which torchrun starts')
