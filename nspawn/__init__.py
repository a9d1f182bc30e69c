"""Talking to systemd-nspawn machines from their host, without trusting what runs in them.

Import the submodule you need; importing the package itself costs nothing:

- `nspawn.machined`: which machines there are, binding a directory into one, start and stop events
- `nspawn.view`: what a machine sees at a path, resolved in the machine's own root
- `nspawn.rootfs`: writing durably beneath a rootfs whose owner may plant links
- `nspawn.settings`: a marked block of binds in a machine's `.nspawn` file
- `nspawn.run`: running a command inside a machine, bounded in time and output
- `nspawn.errors`: everything that can go wrong, drawn as a tree
"""
