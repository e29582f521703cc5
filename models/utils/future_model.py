"""Methods that can say something of classes they have not been shown, such as vision-language models."""
from models.utils.continual_model import ContinualModel


class FutureModel(ContinualModel):
    """Base class of such methods, as in Mammoth; tasks to come are not evaluated here."""

    def future_forward(self, x):
        """Logits (B, N_CLASSES) over all classes, seen or not."""
        raise NotImplementedError(f'{type(self).__name__} has no future_forward')

    def change_transform(self, dataset) -> None:
        """Called before tasks to come are evaluated, for methods that
        prepare images in a way of their own."""
