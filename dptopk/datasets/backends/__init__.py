"""The engines that events are counted on, one a file: what each does in its own way, and the
contract they all keep.
"""
