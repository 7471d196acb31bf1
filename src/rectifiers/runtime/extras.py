"""One line for what is not installed: the extra of the package that brings it."""

EXTRAS = {
    "dvc": "imagenet",
    "dvc_data": "imagenet",
    "dvc_objects": "imagenet",
    "zlib_ng": "imagenet",
    "jinja2": "report",
    "matplotlib": "report",
    "pandas": "report",
    "psutil": "wandb",
    "tensorboard": "tensorboard",
    "timm": "timm",
    "wandb": "wandb",
    "wandb_workspaces": "wandb",
}
# The options of Hydra's plugins, which a configuration chooses.
PLUGINS = {
    "hydra/launcher/submitit_local": "slurm",
    "hydra/launcher/submitit_slurm": "slurm",
    "hydra/sweeper/optuna": "optuna",
}


def missing_extra(error: Exception) -> str | None:
    """Return a line that names the extra without which `error` was raised, or None.

    error: a ModuleNotFoundError, or Hydra's error for an option of a plugin."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        extra = EXTRAS.get(package)
    else:
        package = next((option for option in PLUGINS if f"'{option}'" in str(error)), "")
        extra = PLUGINS.get(package)
    if extra is None:
        return None
    return (
        f"{package} is not installed; call make setup EXTRAS={extra}, or "
        f"pip install 'rectifiers[{extra}]'"
    )
