"""A user's own images as a stream: `--data_dir` with `{train,test}/<class>/`; five tasks."""

from datasets.utils import readers
from datasets.utils.scheduled_dataset import ScheduledDataset
from scroll.ground.errors import InputError


class SequentialFolder(ScheduledDataset):
    """Images are read once and kept at 84x84; formats are those of `scroll.files.images`."""

    NAME = 'seq-folder'
    N_CLASSES = 0  # known once the folder is read
    SIZE = (84, 84)
    DEFAULT_SPLITS = 5
    PADDING = 8

    @staticmethod
    def get_parser(parser):
        parser = ScheduledDataset.get_parser(parser)
        parser.add_argument(
            '--data_dir',
            affects='content',
            help='folder with train/<class>/ and test/<class>/ (seq-folder)',
        )
        return parser

    @classmethod
    def read(cls, args):
        if not args.data_dir:
            raise InputError(
                '--data_dir is missing: seq-folder needs a folder with train/<class>/ and '
                'test/<class>/ in it'
            )
        return readers.folder(args.data_dir, cls.SIZE[0])
