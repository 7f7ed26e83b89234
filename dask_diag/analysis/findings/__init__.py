"""Findings: causes of lost time, and of misleading measurements, with advice."""
