# Python code sees nothing of this module.
