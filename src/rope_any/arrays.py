"""
Records of array libraries: how to add one that differs from the array API standard.

Arrays of a library that follows the array API 2023.12 need no record.
"""

from rope_any._arrays import Compiler, Gradients, HostMemory, Library, State, register
from rope_any._arrays._library import Refusal, immutable

__all__ = ["Compiler", "Gradients", "HostMemory", "Library", "Refusal", "State", "immutable", "register"]
