"""The training loop: tasks, epochs, batches; evaluation after each task; one results row at the end."""
import copy
import itertools
import math
import time
from contextlib import contextmanager

import torch
from tqdm import tqdm

from utils import results
from utils.anytime import Anytime
from utils.conf import results_folder
from utils.errors import UserError
from utils.evaluate import evaluate, serve
from utils.fitting import make_fitting
from utils.report import Record, Stopwatch, finish, print_accuracies, settings
from utils.schedulers import get_scheduler
from utils.tracking import Tracker


def train(model, dataset, args) -> dict:
    """Run the whole stream, or with `--start_from` and `--stop_after` a part of it.

    Returns:
        The results row, which is also written unless `--disable_log 1`.
    """
    arguments = {name: value for name, value in vars(args).items() if name != 'class_order'}
    folders = {setting: results_folder(args, setting) for setting in settings(dataset)}
    if not args.disable_log:
        for folder in folders.values():
            results.check_writable(folder)
    tasks, first = _part_of_the_stream(dataset, args)
    record, began = Record(first), time.perf_counter()
    tracker = Tracker(args, next(iter(folders.values())) / 'tensorboard' / record.run)
    anytime = Anytime(model, dataset, args.eval_every)
    later = _later_loaders(model, dataset) if args.eval_future else []
    if args.enable_other_metrics:
        loaders = [(t, dataset.test_loader(t)) for t in range(tasks)]
        record.untrained = tuple(accuracies[1:] for accuracies in evaluate(model, dataset, loaders=loaders))
    for task in range(tasks):
        training_mode(model.net, args.bn)
        train_loader, _ = dataset.get_data_loaders()
        record.test_sizes.append(len(dataset.test_loaders[-1].dataset))
        model.meta_begin_task(dataset)
        if args.enable_other_metrics and task > 0:
            for row, accuracies in zip(record.before, evaluate(model, dataset, last=True)):
                row += accuracies
        if task >= first and not args.inference_only:
            _learn_task(model, dataset, train_loader, args, record, tracker, anytime)
        with Stopwatch(record.seconds, 'stream'):
            model.meta_end_task(dataset)
        if task >= first:
            _evaluate_task(model, dataset, record, tracker)
            if later[task + 1:]:
                _evaluate_later(model, dataset, later, record)
    if args.validation and hasattr(dataset, 'without_validation'):
        _evaluate_for_real(model, dataset, record)
    record.seconds['total'] = time.perf_counter() - began
    record.anytime = anytime
    row = finish(model, dataset, args, arguments, record, folders)
    tracker.finish(row)
    return row


def _part_of_the_stream(dataset, args) -> tuple:
    """(number of tasks that are begun, first of them that is trained)."""
    first, last = args.start_from or 0, args.stop_after or dataset.N_TASKS
    for flag, value, most in (('start_from', first, dataset.N_TASKS - 1), ('stop_after', last, dataset.N_TASKS)):
        if value > most:
            raise UserError(f'--{flag} {value}: this stream has {dataset.N_TASKS} tasks; use at most {most}')
    return last, first


def _learn_task(model, dataset, loader, args, record, tracker, anytime) -> None:
    serve(loader, model)
    scheduler, fitting, epoch = get_scheduler(model, args, reload_optim=False), make_fitting(args, model, dataset), 0
    few = model.get_debug_iters() if args.debug_mode else None
    while fitting.wants_epoch(epoch):
        with Stopwatch(record.seconds, 'stream'):
            training_mode(model.net, args.bn)
            model.meta_begin_epoch(epoch, dataset)
            bar = tqdm(itertools.islice(loader, few), desc=f'Task {dataset.c_task + 1} - Epoch {epoch + 1}', leave=False,
                       total=few or (len(loader) if hasattr(loader, '__len__') else None), disable=args.non_verbose or None,
                       mininterval=0.5)
            losses, batches = LossWatch(f'task {dataset.c_task + 1}, epoch {epoch + 1}'), 0
            for batch in bar:
                if not model.RAW_STREAM:
                    batch = [x.to(model.device) for x in batch]
                inputs, labels, not_aug_inputs, *extras = batch
                names = getattr(getattr(loader, 'dataset', None), 'extra_return_fields', ())
                labels = labels.long()
                with _enough_for_batch_norms(model.net, _count(model, labels)):
                    loss = model.meta_observe(inputs, labels, not_aug_inputs, epoch=epoch, **dict(zip(names, extras)))
                record.images, batches = record.images + len(labels), batches + 1
                if losses.add(loss):
                    told = dict(loss=losses.mean, lr=model.opt.param_groups[0]['lr']) if model.opt else dict(loss=losses.mean)
                    bar.set_postfix({name: f'{value:.3g}' for name, value in told.items()}, refresh=False)
                    tracker.log(told, record.images)
                if scheduler and args.scheduler_mode == 'iter':
                    scheduler.step()
                if anytime.add(labels):
                    tracker.log(dict(anytime_accuracy=anytime.curve[-1][1]), record.images)
                if fitting.end_batch():
                    break
            if scheduler and args.scheduler_mode == 'epoch':
                scheduler.step()
            losses.check()
            model.meta_end_epoch(epoch, dataset)
            fitting.end_epoch(epoch, batches)
        epoch += 1
        if args.eval_epochs and epoch % args.eval_epochs == 0 and fitting.wants_epoch(epoch):
            accuracies = dataset.evaluate(model, dataset)
            print_accuracies(*accuracies, dataset, f' (epoch {epoch})')
            tracker.log_accuracies(*accuracies, dataset, f'_epoch_{epoch}')
    fitting.finish()


def _count(model, labels) -> int:
    """Samples of a batch that the method will learn from."""
    return int((labels != -1).sum()) if model.drops_unlabelled else len(labels)


def training_mode(net, bn: str) -> None:
    """Train mode; with `--bn frozen` batch norms keep to the statistics they came with."""
    if net is None:
        return
    net.train()
    if bn == 'frozen':
        for module in _batch_norms(net):
            module.eval()


def _batch_norms(net) -> list:
    return [module for module in net.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]


@contextmanager
def _enough_for_batch_norms(net, count: int):
    """One sample has no batch statistics: it is learned with those the network has."""
    spared = [module for module in _batch_norms(net) if module.training] if count == 1 and net is not None else []
    for module in spared:
        module.eval()
    try:
        yield
    except ValueError as error:
        if 'more than 1 value per channel' not in str(error):
            raise
        raise UserError('batch norms cannot train on one sample at a time: give --minibatch_size above 1, a larger --input_size, '
                        'or --bn frozen') from error
    finally:
        for module in spared:
            module.train()


class LossWatch:
    """Stops a run whose loss is not finite; looks once in a while, since looking makes a GPU wait.

    Attributes:
        mean: of the losses between the last two looks; None before the first.
    """
    _BATCHES, _SECONDS = 100, 0.5

    def __init__(self, where: str):
        self.where, self.mean = where, None
        self._known, self._waiting, self._looked = [], [], time.monotonic()

    def add(self, loss) -> bool:
        """Note what `observe` returned: a number, a tensor, a dict with 'loss', or None. Returns whether it looked."""
        loss = loss.get('loss') if isinstance(loss, dict) else loss
        if isinstance(loss, torch.Tensor):
            loss = loss.detach().float().mean()
            (self._known if loss.device.type == 'cpu' else self._waiting).append(loss)
        elif loss is not None:
            self._known.append(float(loss))
        due = len(self._known) + len(self._waiting) >= self._BATCHES or time.monotonic() > self._looked + self._SECONDS
        if due:
            self.check()
        return due and self.mean is not None

    def check(self) -> None:
        """UserError if a loss since the last look is not finite."""
        losses = [float(loss) for loss in self._known] + (torch.stack(self._waiting).tolist() if self._waiting else [])
        if not all(map(math.isfinite, losses)):
            raise UserError(f'the loss is no longer finite ({self.where}): try a smaller --lr')
        if losses:
            self.mean = sum(losses) / len(losses)
        self._known, self._waiting, self._looked = [], [], time.monotonic()


def _evaluate_task(model, dataset, record, tracker) -> None:
    with Stopwatch(record.seconds, 'evaluation'):
        accuracies = dataset.evaluate(model, dataset)
        record.class_il.append(accuracies[0])
        record.task_il.append(accuracies[1])
        print_accuracies(*accuracies, dataset)
        tracker.log_accuracies(*accuracies, dataset)
        model.meta_end_eval(dataset, accuracies)


def _later_loaders(model, dataset) -> list:
    """Test loaders of all tasks, with images as a method wants them that says something of tasks to come (`--eval_future`)."""
    other = copy.copy(dataset)
    other.test_loaders = []
    model.change_transform(other)
    for _ in range(dataset.N_TASKS):
        other.get_data_loaders()
    return other.test_loaders


def _evaluate_later(model, dataset, loaders, record) -> None:
    """On the tasks to come, among all classes."""
    coming = list(enumerate(loaders))[dataset.c_task + 1:]
    with Stopwatch(record.seconds, 'evaluation'):
        accuracies = evaluate(model, dataset, loaders=coming, forward=model.future_forward, seen=range(dataset.N_CLASSES))
    record.later.append(accuracies)
    print_accuracies(*accuracies, dataset, what='Future Accuracy')


def _evaluate_for_real(model, dataset, record) -> None:
    """After a run on held-out samples (`--validation`): the real test set."""
    with Stopwatch(record.seconds, 'evaluation'):
        real = dataset.without_validation()
        record.test = evaluate(model, real)
        record.real_sizes = [len(loader.dataset) for loader in real.test_loaders]
    print_accuracies(*record.test, dataset, when='final')
