"""The rows and labels that a plan is fitted to and judged on."""
