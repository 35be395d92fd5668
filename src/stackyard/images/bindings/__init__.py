"""The host's libraries in an image: which are needed and why, where each is bound, and whether the image can use them.

detect    what of this machine an image needs, as a reviewable file
check     whether the programs of an image load it, and can
maps      what each rank has loaded: the last word
"""
