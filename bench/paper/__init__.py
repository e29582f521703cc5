"""The paper's tables and figures: experiments, sweeps, tuning, the report."""
