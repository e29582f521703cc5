"""From arguments to what a run consists of: data set, backbone, method."""
from scroll.errors import InputError


def initialize(args=None):
    """Data set, backbone and model of a run: (model, dataset, args). Without
    arguments, those of the command line."""
    if args is None:
        from bench.cli.parsing import parse_args
        args = parse_args()
    import torch

    from backbone import get_backbone, weights
    from bench.run.devices import arrange, optimise, reuse_memory, split_among_gpus
    from core.environment import (
        base_path,
        choose_devices,
        get_checkpoint_path,
        results_folder,
        set_random_seed,
    )
    from core.rows import check_writable
    from datasets import get_dataset
    from models import get_model
    from scroll.embedding.embedder import state_digest
    if args.num_threads:
        torch.set_num_threads(args.num_threads)
    devices = choose_devices(args.device, several=args.distributed == 'dp')
    args.device = devices[0]
    base_path(args.base_path)
    get_checkpoint_path(args.checkpoint_path)
    set_random_seed(args.seed)
    reuse_memory()
    if not args.disable_log:
        check_writable(results_folder(args, 'class-il').parent.parent.parent)
    dataset = get_dataset(args)
    args.class_order, args.num_classes = getattr(dataset, 'class_order', None), _outputs(args, dataset)
    if hasattr(dataset, 'num_inputs'):
        args.num_inputs = dataset.num_inputs
    net = get_backbone(args)
    if args.weights != 'none':
        weights.load(args.weights).load_into(net)
    digest = state_digest(net)
    optimise(net, args.code_optimization)
    model = get_model(args, net, dataset.get_loss(), dataset.get_transform(), dataset)
    model.psi_digest = digest
    arrange(model)
    if args.distributed == 'dp':
        split_among_gpus(model, devices)
    return model, dataset, args


def _outputs(args, dataset) -> int:
    """Outputs of the network: one for each class, or `--num_classes`."""
    outputs = getattr(args, 'num_classes', dataset.N_CLASSES)
    if outputs < dataset.N_CLASSES:
        raise InputError(f'--num_classes {outputs}: {args.dataset} has {dataset.N_CLASSES} classes; give as '
                         'many or more')
    return outputs
