"""From arguments to what a run consists of: data set, backbone, method."""

import argparse
import logging

from scroll.ground.errors import InputError


def initialize(args) -> tuple:
    """(model, dataset, args) of a run with these parsed arguments, which are completed."""
    import torch

    from backbone import get_backbone, weights
    from bench.run.devices import arrange, optimise, reuse_memory, share_cores
    from core import environment
    from core.forks import their_errors
    from core.rows import check_writable
    from datasets import get_dataset
    from datasets.utils.defaults import OF_DATA_SET, network_of
    from models import get_model
    from scroll.embedding.embedder import state_digest

    log = logging.getLogger(__name__)  # as Mammoth's own tests read it
    log.debug('%s', argparse.Namespace(**vars(args) | {'backbone': args.backbone.split(':')[-1]}))
    if args.num_threads:
        torch.set_num_threads(args.num_threads)
    args.device = environment.choose_device(args.device)
    environment.base_path(args.base_path)
    environment.get_checkpoint_path(args.checkpoint_path)
    environment.set_random_seed(args.seed)
    reuse_memory()
    if not args.disable_log:  # before data are read
        check_writable(environment.results_folder(args, 'class-il').parent.parent.parent)
    dataset = get_dataset(args)
    args.class_order = getattr(dataset, 'class_order', None)
    args.num_classes = getattr(args, 'num_classes', dataset.N_CLASSES)  # outputs of the network
    if args.num_classes < dataset.N_CLASSES:
        raise InputError(
            f'--num_classes {args.num_classes}: {args.dataset} has {dataset.N_CLASSES} classes; '
            'give at least that'
        )
    if hasattr(dataset, 'num_inputs'):
        args.num_inputs = dataset.num_inputs
    own = args.backbone.startswith(OF_DATA_SET)
    net = network_of(dataset, args.backbone) if own else get_backbone(args)
    if args.weights != 'none':
        weights.load(args.weights).load_into(net)
    digest = state_digest(net)
    optimise(net, args.code_optimization)
    with their_errors(f'--model {args.model}'):
        model = get_model(args, net, dataset.get_loss(), dataset.get_transform(), dataset)
    model.psi_digest = digest
    args.precision = arrange(model, args.precision)
    share_cores(model)
    log.info('Using backbone: %s', args.backbone)
    return model, dataset, args
