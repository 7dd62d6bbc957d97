"""Says under which name this package is imported: headroom_train.

This is a module and not a package, because another distribution has a package
headroom/. In one folder Python takes a package before a module, and neither has a
file of the other: so this module never replaces that package.
"""

raise ImportError("headroom-train is imported as headroom_train: write "
                  "`import headroom_train as headroom`")
