"""Bokeh remembers the defaults of its classes: to find them took half of the time of a page."""

from __future__ import annotations

from functools import cache, wraps

from bokeh.core.has_props import HasProps
from bokeh.core.property.descriptors import PropertyDescriptor

OVERRIDDEN = HasProps._overridden_defaults.__func__
"""The defaults that a class changes, of those that it inherits."""
UNSTABLE = PropertyDescriptor.has_unstable_default
"""Whether a property's default is another object for each model."""
DEFAULT = PropertyDescriptor.instance_default
"""A property's default, once it was validated."""

_FIXED = (bool, float, int, str, type(None))
"""Types of defaults that models may share."""


def remember_defaults():
    """They depend on the class only, and bokeh finds them again for each value that it reads."""
    defaults = {}

    @cache
    def unstable_of(descriptor, model_class):
        return UNSTABLE(descriptor, model_class)

    @wraps(UNSTABLE)
    def has_unstable_default(descriptor, model):
        return unstable_of(descriptor, type(model))

    @wraps(DEFAULT)
    def instance_default(descriptor, model):
        key = descriptor, type(model)
        themed = model.themed_values()
        if themed is not None and descriptor.name in themed:
            return DEFAULT(descriptor, model)
        if key in defaults:
            return defaults[key]
        value = DEFAULT(descriptor, model)
        if type(value) in _FIXED and not unstable_of(*key):
            defaults[key] = value
        return value

    PropertyDescriptor.has_unstable_default = has_unstable_default
    PropertyDescriptor.instance_default = instance_default
    HasProps._overridden_defaults = classmethod(cache(OVERRIDDEN))
