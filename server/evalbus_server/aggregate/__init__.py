"""From scores to outcomes, numbers and verdicts. Pure: values in, values out, no IO and no clock."""
