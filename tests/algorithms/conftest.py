"""Annotations of shapes are executed in all of Sterling."""

import executed_annotations

executed_annotations.switch_on()
