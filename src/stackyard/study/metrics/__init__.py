"""What a run achieved: rates and times that its program printed, its memory, its energy.

`read.read_run` is the one reader, for studies, for searches and for ``stackyard runs diff``. `model` has metrics that
you declare, `formats` those that are known by how a program prints them, `events` those in TensorBoard's files;
`series` makes one number of many steps and many ranks, `lines` reads logs, `resources` memory and energy. `measured` is
the result.
"""
