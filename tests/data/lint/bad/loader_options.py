"""A Horovod program whose data loader gets its workers by keyword arguments."""

import horovod.torch as hvd
from torch.utils.data import DataLoader

hvd.init()
options = {"num_workers": 2, "pin_memory": True}
loader = DataLoader(range(8), batch_size=2, **options)
