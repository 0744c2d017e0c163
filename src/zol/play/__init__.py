"""``zol play``: a page on which a pretrained model is asked for behaviour, and shows it at once.

What happens is in :mod:`zol.play.session`, which knows nothing of browsers: from a reward or a goal to a
latent, to the steps of two bodies side by side. :mod:`zol.play.scene` draws them, :mod:`zol.play.panel` holds
the controls, :mod:`zol.play.server` gives every browser a session of its own.
"""
