# SPDX-License-Identifier: GPL-2.0-or-later
"""fio in guests, variant by variant: what 'make fio' runs.

matrix    what is measured: cells, variants, rounds, and in which order
disks     what it is measured on, and what must never be written to
client    fio's own client and server, over a port of the guest or over ssh
guests    a guest with fio's server in it
remote    a guest that runs already: a libvirt domain, over ssh
pool      which guests are kept, and that only one of them runs
host      what the host sees meanwhile: CPU time, exits, facts
runner    runs what is not done yet and keeps each run in a file of its own

What is said about the files afterwards is in bench/fio*.py.
"""
