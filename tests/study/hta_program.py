"""What HTA (PyPI: traceinsight) finds in a directory of traces, as JSON: ``hta_program.py DIR [gpu]``."""

import json
import sys
import warnings

from hta.trace_analysis import TraceAnalysis

warnings.simplefilter("ignore")
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
found = {"ranks": sorted(analysis.t.traces), "steps": [int(step) for step in analysis.get_profiler_steps()]}
if "gpu" in sys.argv:
    times = analysis.get_temporal_breakdown(visualize=False)
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    kernels, _ = analysis.get_gpu_kernel_breakdown(visualize=False)
    found["idle"] = [float(value) for value in times["idle_time(us)"]]
    found["compute"] = [float(value) for value in times["compute_time(us)"]]
    found["overlap"] = [float(value) for value in overlap["comp_comm_overlap_pctg"]]
    found["kernels"] = {row["kernel_type"]: float(row["sum"]) for _, row in kernels.iterrows()}
print(json.dumps(found, default=str))
