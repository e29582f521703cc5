"""The training loop: tasks, epochs, batches; evaluation after each task; one results row at the
end.
"""

from bench.results.report import Record, Stopwatch, finish
from bench.resume import saved_models
from bench.resume.checkpoints import Checkpoints
from bench.resume.run_state import Position, RunState
from bench.run.anytime import Anytime
from bench.run.fitting import Fitting
from bench.run.settings import Output, Stream, Training
from core import rows as results
from core.environment import results_folder
from core.loss_watch import LossWatch
from scroll.ground.archive import check_target
from scroll.ground.errors import InputError
from scroll.ground.progress import Progress
from utils.batch_norm import allow_single_values, training_mode
from utils.evaluate import evaluate, serve
from utils.loggers import print_accuracies, settings
from utils.schedulers import get_scheduler


def train(model, dataset, args, test: bool = True) -> dict:
    """Run the whole stream, or with `--start_from` and `--stop_after` a part of it.

    test: False to leave out the test set at the end of a run on held-out samples (`--validation`).

    Returns:
        The results row, which is also written unless `--disable_log 1`.

    InputError: something is invalid, or the run has its row and a file of the model cannot be
    written."""
    stream, output = Stream.of(args), Output.of(args)
    arguments = {name: value for name, value in vars(args).items() if name != 'class_order'}
    if output.savecheck:
        check_target(args.checkpoint_path, '--savecheck: --checkpoint_path', folder=True)
    folders = {setting: results_folder(args, setting) for setting in settings(dataset)}
    for folder in () if output.disable_log else folders.values():
        results.check_writable(folder)
    first, tasks = stream.start_from or 0, stream.stop_after or dataset.N_TASKS
    if first >= dataset.N_TASKS or tasks > dataset.N_TASKS:
        raise InputError(
            f'--start_from {first} --stop_after {tasks}: there are {dataset.N_TASKS} tasks'
        )
    if getattr(args, 'differs', ''):
        print(args.differs, flush=True)
    record, anytime = Record(first), Anytime(model, dataset, output.eval_every, output.prequential)
    state = RunState(model, dataset, args, record=record, anytime=anytime)
    with Checkpoints(state, args, arguments) as checkpoints:
        restored = checkpoints.restore()
        start = restored or saved_models.load(state, args)
        record.began -= record.seconds['total']  # of the run that is continued
        if output.enable_other_metrics and start == Position():
            record.untrained = _evaluate_untrained(model, dataset, tasks)
        # a run that is evaluated where it was
        if stream.inference_only and start.task and not restored:
            tasks, first = start.task, record.first
            del record.class_il[-1:], record.task_il[-1:]
            _evaluate_task(model, dataset, record)

        for task in range(start.task, tasks):
            training, trained = Training.of(args), task >= first
            if not (task == start.task and start.begun):
                _begin_task(model, dataset, state, record, training, output)
            with allow_single_values(model.net):
                if trained and not stream.inference_only:
                    _learn_task(model, dataset, args, state, record, anytime, checkpoints)
                with (
                    Stopwatch(record.seconds, 'stream'),
                    Progress(f'End of task {task + 1}', quiet=output.non_verbose),
                ):
                    model.meta_end_task(dataset)
            if task + 1 == first:
                saved_models.load_weights(model, dataset, args)
            if trained:
                _evaluate_task(model, dataset, record)
            if output.savecheck == 'task' and task < tasks - 1:
                saved_models.save(state, args, arguments, task)
            if task == tasks - 1 or checkpoints.due():
                checkpoints.save(Position(task + 1), last=task == tasks - 1)

        if test and stream.validation and hasattr(dataset, 'without_validation'):
            _evaluate_for_real(model, dataset, record)
        record.tell_total()
        row = finish(model, dataset, args, arguments, record, anytime, folders)
        try:  # the row comes first: a file that cannot be written does not cost it
            model.save_files()
            if output.savecheck:
                saved_models.save(state, args, arguments, tasks - 1)
        except InputError as error:
            raise InputError(
                f'the run has finished, but {error}; free some space or choose another path, '
                f'and {checkpoints.again}'
            ) from error
        checkpoints.finished()
    return row


def _begin_task(model, dataset, state, record, training: Training, output: Output) -> None:
    """The next task's data, and what the method does before it learns them."""
    training_mode(model.net, training.bn)
    state.next_task()
    serve(state.loader, model)  # whose length a method may ask for
    record.test_sizes.append(len(dataset.test_loaders[-1].dataset))
    with Progress(f'Beginning of task {dataset.c_task + 1}', quiet=output.non_verbose):
        model.meta_begin_task(dataset)
    if output.enable_other_metrics and dataset.c_task > 0:
        for row, accuracies in zip(record.before, evaluate(model, dataset, last=True)):
            row += accuracies


def _learn_task(model, dataset, args, state, record, anytime, checkpoints) -> None:
    """The task's epochs and batches, from where the run was interrupted."""
    training, task, loader = Training.of(args), dataset.c_task, state.loader
    serve(loader, model)
    scheduler = get_scheduler(model, args, reload_optim=False)
    fitting = Fitting(training, model, dataset)
    limit = model.get_debug_iters() if training.debug_mode else None
    epoch, batches = state.begin_learning(scheduler=scheduler, fitting=fitting)
    while fitting.wants_epoch(epoch):
        total = limit or (len(loader) if hasattr(loader, '__len__') else None)
        progress = Progress(
            f'Task {task + 1} - Epoch {epoch + 1}', total, batches, args.non_verbose
        )
        with Stopwatch(record.seconds, 'stream') as watch:
            if not batches:  # else this pass was interrupted
                training_mode(model.net, training.bn)
                model.meta_begin_epoch(epoch, dataset)
            losses = LossWatch(f'task {task + 1}, epoch {epoch + 1}')
            for batch in progress.over(state.batches(limit)):
                anytime.predict(batch)
                labels, loss = _learn_batch(model, loader, batch, epoch)
                record.images, batches = record.images + len(labels), batches + 1
                if losses.add(loss):
                    rate = {'lr': model.opt.param_groups[0]['lr']} if model.opt else {}
                    progress.tell(loss=losses.mean, **rate)
                if scheduler and training.scheduler_mode == 'iter':
                    scheduler.step()
                anytime.add(labels)
                if fitting.end_batch():
                    break
                if checkpoints.due():
                    losses.check()
                    watch.lap()
                    checkpoints.save(Position(task, epoch, batches, begun=True))
            if scheduler and training.scheduler_mode == 'epoch':
                scheduler.step()
            losses.check()
            model.meta_end_epoch(epoch, dataset)
            fitting.end_epoch(epoch, batches)
        epoch, batches = epoch + 1, 0
        if (
            training.eval_epochs
            and epoch % training.eval_epochs == 0
            and fitting.wants_epoch(epoch)
        ):
            accuracies = dataset.evaluate(model, dataset)
            print_accuracies(*accuracies, dataset, f' (epoch {epoch})')
        if checkpoints.due():
            checkpoints.save(Position(task, epoch, begun=True))
    fitting.finish()


def _learn_batch(model, loader, batch, epoch: int) -> tuple:
    """(labels int64 (B,), the method's loss); further fields of the data set go by their names."""
    if not model.RAW_STREAM:
        batch = [x.to(model.device) for x in batch]
    inputs, labels, not_aug_inputs, *extras = batch
    names, labels = (
        getattr(getattr(loader, 'dataset', None), 'extra_return_fields', ()),
        labels.long(),
    )
    try:
        return labels, model.meta_observe(
            inputs, labels, not_aug_inputs, epoch=epoch, **dict(zip(names, extras))
        )
    except ValueError as error:
        if 'more than 1 value per channel' not in str(error):
            raise
        raise InputError(
            'batch norms without running statistics cannot train on one sample at a time: give '
            '--batch_size and --minibatch_size above 1, a larger --input_size, or --bn frozen'
        ) from error


def _evaluate_task(model, dataset, record) -> None:
    with Stopwatch(record.seconds, 'evaluation'):
        accuracies = dataset.evaluate(model, dataset)
        record.class_il.append(accuracies[0])
        record.task_il.append(accuracies[1])
        print_accuracies(*accuracies, dataset)
        model.meta_end_eval(dataset, accuracies)


def _evaluate_untrained(model, dataset, tasks: int) -> tuple:
    """(class-il, task-il) on each task from the second on, before any training, among the same
    classes as just before that task is learned."""
    found, seen = ([], []), dict.fromkeys(dataset.task_classes(0).tolist())
    for task in range(1, tasks):
        seen |= dict.fromkeys(dataset.task_classes(task).tolist())
        loaders = [(task, dataset.test_loader(task))]
        for row, accuracies in zip(
            found, evaluate(model, dataset, loaders=loaders, seen=list(seen))
        ):
            row += accuracies
    return found


def _evaluate_for_real(model, dataset, record) -> None:
    """After a run on held-out samples (`--validation`): the real test set."""
    with Stopwatch(record.seconds, 'evaluation'):
        real = dataset.without_validation()
        record.test = evaluate(model, real)
        record.real_sizes = [len(loader.dataset) for loader in real.test_loaders]
    print_accuracies(*record.test, dataset, when='final')
