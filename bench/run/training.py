"""The training loop: tasks, epochs, batches; evaluation after each task; one results row at the
end.
"""

from argparse import Namespace
from typing import NamedTuple

from bench.results.report import Record, finish, stopwatch
from bench.resume import saved_models
from bench.resume.checkpoints import Checkpoints
from bench.resume.run_state import Position, RunState
from bench.run.anytime import Anytime
from bench.run.fitting import Fitting
from core import rows as results
from core.environment import results_folder
from core.forks import their_errors
from core.loss_watch import LossWatch
from datasets.utils.continual_dataset import ContinualDataset
from models.utils.continual_model import ContinualModel
from scroll.ground.archive import check_target
from scroll.ground.errors import InputError
from scroll.ground.progress import track
from utils.batch_norm import allow_single_values, training_mode
from utils.evaluate import evaluate, serve
from utils.loggers import print_accuracies, settings
from utils.schedulers import get_scheduler


class Run(NamedTuple):
    """The parts of one run, for the steps of the loop.

    begun: the arguments as the run began: a method may change `args`, for the tasks to come."""

    model: ContinualModel
    dataset: ContinualDataset
    args: Namespace
    begun: Namespace
    record: Record
    anytime: Anytime
    state: RunState
    checkpoints: Checkpoints


def train(model, dataset, args, test: bool = True) -> dict:
    """Run the whole stream, or with `--start_from` and `--stop_after` a part of it.

    test: False to leave out the test set at the end of a run on held-out samples (`--validation`).

    Returns:
        The results row, which is also written unless `--disable_log 1`.

    InputError: something is invalid, or the run has its row and a file of the model cannot be
    written."""
    arguments = {name: value for name, value in vars(args).items() if name != 'class_order'}
    begun = Namespace(**arguments)
    if begun.savecheck:
        check_target(begun.checkpoint_path, '--savecheck: --checkpoint_path', folder=True)
    folders = {setting: results_folder(args, setting) for setting in settings(dataset)}
    for folder in () if begun.disable_log else folders.values():
        results.check_writable(folder)
    first = begun.start_from or 0
    tasks = begun.stop_after or dataset.N_TASKS
    if first >= dataset.N_TASKS or tasks > dataset.N_TASKS:
        raise InputError(
            f'--start_from {first} --stop_after {tasks}: there are {dataset.N_TASKS} tasks'
        )
    if getattr(args, 'differs', ''):
        print(args.differs, flush=True)
    record = Record(first)
    anytime = Anytime(model, dataset, begun.eval_every, begun.prequential)
    state = RunState(model, dataset, args, record=record, anytime=anytime)
    checkpoints = Checkpoints(state, args, arguments)
    run = Run(model, dataset, args, begun, record, anytime, state, checkpoints)
    with their_errors(f'--model {args.model}'), checkpoints:
        tasks = _run_tasks(run, first, tasks)
        if test and begun.validation and hasattr(dataset, 'without_validation'):
            _evaluate_for_real(run)
        record.tell_total()
        row = finish(model, dataset, args, arguments, record, anytime, folders)
        try:  # the row comes first: a file that cannot be written does not cost it
            model.save_files()
            if begun.savecheck:
                saved_models.save(state, args, arguments, tasks - 1)
        except InputError as error:
            raise InputError(
                f'the run has finished, but {error}; free some space or choose another path, '
                f'and {checkpoints.resume_hint()}'
            ) from error
        checkpoints.finished()
    return row


def _run_tasks(run: Run, first: int, tasks: int) -> int:
    """Learn and evaluate the tasks up to number `tasks`, from where an interrupted run or a saved
    one was. first: the first that is learned. Returns the number of tasks that have ended."""
    record = run.record
    begun = run.begun
    checkpoints = run.checkpoints
    restored = checkpoints.restore()
    start = restored or saved_models.load(run.state, run.args)
    record.began -= record.seconds['total']  # of the run that is continued
    whole = restored or run.anytime.samples
    if first and (begun.eval_every or begun.prequential) and not whole:
        raise InputError(
            '--eval_every and --prequential need the stream from its first task: leave out '
            '--start_from, or load a run that had them'
        )
    if begun.enable_other_metrics and start == Position():
        record.untrained = _evaluate_untrained(run, tasks)
    if begun.inference_only and start.task and not restored:
        # a saved run is evaluated where it was
        tasks = start.task
        first = record.first
        del record.class_il[-1:], record.task_il[-1:]
        _evaluate_task(run)
    for task in range(start.task, tasks):
        if not (task == start.task and start.begun):
            _begin_task(run)
        with allow_single_values(run.model.net):
            if task >= first and not begun.inference_only:
                _learn_task(run)
            with stopwatch(record.seconds, 'stream'):
                run.model.meta_end_task(run.dataset)
        if task + 1 == first:
            saved_models.load_weights(run.model, run.dataset, run.args)
        if task >= first:
            _evaluate_task(run)
        if begun.savecheck == 'task' and task < tasks - 1:
            saved_models.save(run.state, run.args, vars(begun), task)
        if task == tasks - 1 or checkpoints.due():
            checkpoints.save(Position(task + 1), last=task == tasks - 1)
    return tasks


def _begin_task(run: Run) -> None:
    """Load the next task's data, and let the method prepare for them."""
    model = run.model
    dataset = run.dataset
    record = run.record
    training_mode(model.net, run.args.bn)
    run.state.next_task()
    serve(run.state.loader, model)  # whose length a method may ask for
    record.test_sizes.append(len(dataset.test_loaders[-1].dataset))
    model.meta_begin_task(dataset)
    if run.begun.enable_other_metrics and dataset.c_task > 0:
        for row, accuracies in zip(record.before, evaluate(model, dataset, last=True)):
            row.extend(accuracies)


def _learn_task(run: Run) -> None:
    """Learn the task's epochs and batches, from where the run was interrupted."""
    model = run.model
    dataset = run.dataset
    state = run.state
    checkpoints = run.checkpoints
    training = Namespace(**vars(run.args))
    task = dataset.c_task
    serve(state.loader, model)
    scheduler = None  # of a raw stream nothing is learned by steps
    if not model.RAW_STREAM:
        scheduler = get_scheduler(model, run.args, loader=state.loader)
    fitting = Fitting(training, model, dataset)
    epoch, batches = state.begin_learning(scheduler=scheduler, fitting=fitting)
    while fitting.wants_epoch(epoch):
        _learn_epoch(run, training, scheduler, fitting, Position(task, epoch, batches, begun=True))
        epoch += 1
        batches = 0
        evaluates = training.eval_epochs and epoch % training.eval_epochs == 0
        if evaluates and fitting.wants_epoch(epoch):
            accuracies = dataset.evaluate(model, dataset)
            print_accuracies(*accuracies, dataset, f' (epoch {epoch})')
        if checkpoints.due():
            checkpoints.save(Position(task, epoch, begun=True))
    fitting.finish()


def _learn_epoch(run: Run, training: Namespace, scheduler, fitting: Fitting, at: Position) -> None:
    """Learn a pass over the task's data, or the rest of an interrupted one. training: the arguments
    as the task began. at: its beginning."""
    model = run.model
    record = run.record
    loader = run.state.loader
    batches = at.batch
    limit = model.get_debug_iters() if training.debug_mode else None
    total = limit or (len(loader) if hasattr(loader, '__len__') else None)
    title = f'Task {at.task + 1} - Epoch {at.epoch + 1}'
    with stopwatch(record.seconds, 'stream') as lap:
        if not batches:
            training_mode(model.net, training.bn)
            model.meta_begin_epoch(at.epoch, run.dataset)
        losses = LossWatch(f'task {at.task + 1}, epoch {at.epoch + 1}')
        stream = run.state.batches(limit)
        progress = track(title, stream, total, batches, run.begun.non_verbose)
        for batch in progress:
            run.anytime.predict(batch)
            labels, loss = _learn_batch(model, loader, batch, at.epoch)
            batches += 1
            if losses.add(loss):
                rate = {'lr': model.opt.param_groups[0]['lr']} if model.opt else {}
                progress.set_postfix(loss=losses.mean, **rate, refresh=False)
            if scheduler and training.scheduler_mode == 'iter':
                scheduler.step()
            run.anytime.add(labels)
            if fitting.end_batch():
                break
            if run.checkpoints.due():
                losses.check()
                lap()
                run.checkpoints.save(at._replace(batch=batches))
        if scheduler and training.scheduler_mode == 'epoch':
            scheduler.step()
        losses.check()
        model.meta_end_epoch(at.epoch, run.dataset)
        fitting.end_epoch(at.epoch, batches)


def _learn_batch(model, loader, batch, epoch: int) -> tuple:
    """(labels int64 (B,), the method's loss); further fields of the data set go by their names."""
    if not model.RAW_STREAM:
        batch = [x.to(model.device) for x in batch]
    inputs, labels, not_aug_inputs, *extras = batch
    names = getattr(getattr(loader, 'dataset', None), 'extra_return_fields', ())
    fields = dict(zip(names, extras))
    labels = labels.long()
    try:
        return labels, model.meta_observe(inputs, labels, not_aug_inputs, epoch=epoch, **fields)
    except ValueError as error:
        if 'more than 1 value per channel' not in str(error):
            raise
        raise InputError(
            'batch norms without running statistics cannot train on one sample at a time: give '
            '--batch_size and --minibatch_size above 1, a larger --input_size, or --bn frozen'
        ) from error


def _evaluate_task(run: Run) -> None:
    model = run.model
    dataset = run.dataset
    record = run.record
    with stopwatch(record.seconds, 'evaluation'):
        accuracies = dataset.evaluate(model, dataset)
        record.class_il.append(accuracies[0])
        record.task_il.append(accuracies[1])
        print_accuracies(*accuracies, dataset)
        model.meta_end_eval(dataset, accuracies)


def _evaluate_untrained(run: Run, tasks: int) -> tuple[list, list]:
    """(class-il, task-il) on each task from the second on, before any training, among the same
    classes as just before that task is learned."""
    dataset = run.dataset
    rows = ([], [])
    for task in range(1, tasks):
        loaders = [(task, dataset.test_loader(task))]
        both = evaluate(run.model, dataset, loaders=loaders, seen=dataset.seen_classes(task))
        for row, accuracies in zip(rows, both):
            row.extend(accuracies)
    return rows


def _evaluate_for_real(run: Run) -> None:
    """Evaluate a run on held-out samples (`--validation`) on the real test set, too."""
    record = run.record
    dataset = run.dataset
    with stopwatch(record.seconds, 'evaluation'):
        real = dataset.without_validation()
        record.test = evaluate(run.model, real)
        record.real_sizes = [len(loader.dataset) for loader in real.test_loaders]
    print_accuracies(*record.test, dataset, when='final')
