#!/usr/bin/env python3
"""Dependence of a method on the order of the classes: easy, hard and random orders, the worst."""

import _root

_root.run('bench.certify.sensitivity')
