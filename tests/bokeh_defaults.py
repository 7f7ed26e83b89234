"""Bokeh remembers which defaults a class has: a third of the time of a page went into that."""

from __future__ import annotations

from functools import cache, wraps

from bokeh.core.has_props import HasProps
from bokeh.core.property.descriptors import PropertyDescriptor

OVERRIDDEN = HasProps._overridden_defaults.__func__
"""The defaults that a class changes, of those that it inherits."""
UNSTABLE = PropertyDescriptor.has_unstable_default
"""Whether a property's default is another object for each model."""


def remember_defaults():
    """Both depend on the class only, and bokeh finds them again for each value that it reads."""

    @cache
    def unstable_of(descriptor, model_class):
        return UNSTABLE(descriptor, model_class)

    @wraps(UNSTABLE)
    def has_unstable_default(descriptor, model):
        return unstable_of(descriptor, type(model))

    PropertyDescriptor.has_unstable_default = has_unstable_default
    HasProps._overridden_defaults = classmethod(cache(OVERRIDDEN))
