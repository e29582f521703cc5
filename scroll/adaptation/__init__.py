"""f_T and the buffer to f*: settings, residual adapters, training."""

from scroll.adaptation.settings import MODES, Adaptation

__all__ = ['MODES', 'Adaptation']
