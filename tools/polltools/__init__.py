# SPDX-License-Identifier: GPL-2.0-or-later
"""What the scripts in tools/ share."""
