"""The kind of machine, in words: what the last bits of floating-point arithmetic depend on."""
import platform

import torch


def kind_of_machine(device='cpu') -> str:
    """The processor and its vector instructions, as torch uses them, or the name of the GPU."""
    device = torch.device(device)
    if device.type == 'cuda':
        return torch.cuda.get_device_name(device)
    return f'{platform.machine()} {torch.backends.cpu.get_cpu_capability()}'


def in_words(device='cpu') -> str:
    """Kind of machine, threads and version of torch: 'x86_64 AVX512, 2 threads, torch 2.15.0'. What is
    trained, as f*, has the same bits where these are the same."""
    count = torch.get_num_threads()
    return f"{kind_of_machine(device)}, {count} thread{'s' * (count != 1)}, torch {torch.__version__}"
