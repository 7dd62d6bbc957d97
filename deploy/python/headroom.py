"""Says the new name of this package: headroom_train.

This is a module and not a package, because another distribution has a package
headroom/. In one folder Python takes a package before a module, and neither has a
file of the other: so this module never replaces that package.
"""

raise ImportError("headroom-train has another name in Python: write `import headroom_train` "
                  "(as headroom, where the rest of a script is to stay)")
