"""Statistics of studies: intervals from exact distributions, verdicts, balanced orders. Pure; no file, no clock.

`series` has the median of one series of runs, `ratios` two variants, `scaling` speed-up and efficiency, `orders` who
runs when, `exact` the distributions. They need the standard library only. An interval is exact (sign, signed-rank and
Mann-Whitney distributions, counted, not approximated), at least 95 %, and not corrected for several comparisons; a
verdict is (`ratios.compare_all`). Where no 95 % interval exists the range is returned, called so, without a verdict.

Neither the bootstrap nor the t distribution nor "the intervals overlap" is used: with six runs they call 7 to 14 % of
equal variants different, or miss what pairs show.
"""
