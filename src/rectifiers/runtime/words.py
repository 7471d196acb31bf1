"""What users of Lightning, lightning-hydra-template and timm, and of earlier versions, type, with
what means the same here.

A key is looked up whole, then by its last part, and then by a section that it lies in; an option as
`<group>=<option>`. A value without a space is a key or an override of ours; any other is a remedy
in words. None of them changes what is trained: a key that has no equal here says so."""

import re

MILESTONES = "scheduler=multistep scheduler.milestones=<epochs>"
OTHER_DATA = "it is not among the data; give its images by data=folder data.root=<folder>"
CONTINUE = "the same command goes on from its last checkpoint; ckpt_path=<file> chooses another"
PLACES = "give data.root, runs_dir or cache_dir"
SHOW = "--cfg job prints the configuration; leave it out"
OWN_LOGGER = (
    "add it as a class: +logger.mine._target_=<package.Class>, and its settings as "
    "+logger.mine.<key>=<value>"
)
TEST = (
    "a run is tested at its end by evaluation=<protocols>, and scripts/evaluate.py run=<id> tests "
    "a finished one"
)
# What is ours, with the words of others for it.
KEYS_OF_OTHERS = {
    # how long
    "trainer.max_epochs": "epoch epochs max_epoch n_epochs num_epochs num_train_epochs",
    "a run is as long as trainer.max_epochs says": "max_steps max_time min_epochs min_steps",
    "debug=smoke": "fast_dev_run",
    # the step
    "data.batch_size": "batch_size bs global_batch train_batch_size",
    "a step is of data.batch_size images at once; more processes save memory": (
        "accumulate_grad_batches gradient_accumulation_steps"
    ),
    "trainer.gradient_clip_val": "clip_grad grad_clip gradient_clip_val max_grad_norm",
    # the optimiser and the learning rate
    "optim=<option>": "opt optimizer optimiser",
    "optim.lr": "base_lr learning_rate lr",
    "optim.weight_decay": "wd weight_decay",
    "optim.momentum": "momentum",
    "scheduler=<option>": "lr_scheduler sched schedule",
    "scheduler.warmup_epochs": "warmup warmup_epochs",
    MILESTONES: "decay_epochs drop_epochs drop_epochs_from",
    "hparams_search=lr": "auto_lr_find",
    # the network
    "model=<option>": "arch backbone net network",
    "activation=<option>": "act act_layer nonlinearity",
    "init=<option>": "initialization initializer weight_init",
    "model.dropout": "drop drop_rate dropout",
    "the data say how many there are; leave it out": "in_channels in_chans nb_classes num_classes",
    "nothing is downloaded; init.from_weights=<file> starts from a state_dict": (
        "initial_checkpoint pretrained state_dict weights weights_path"
    ),
    # the data
    "data=<option>": "datamodule dataset",
    "data.root": "data_dir data_path dataset_dir",
    "data.crop_px": "image_size img_size input_size",
    "data.num_workers": "num_workers workers",
    "data.flip": "hflip",
    "data.val_per_class=<number> images of each class validate": "train_val_test_split",
    "memory is pinned for a GPU; leave it out": "pin_memory",
    "an image that cannot be read ends the run; leave it out": "bad_images",
    "colours are shifted by the eigenvalues; leave it out": "color_scale",
    # the device
    "give trainer=cpu or trainer=gpu": "accelerator device",
    "give trainer=gpu, and trainer.devices=<number> for several": "gpu gpus n_gpus num_gpus",
    "trainer.devices": "devices nproc num_processes world_size",
    "trainer.num_nodes": "nodes num_nodes",
    "give trainer.devices=<processes>; they train by DDP": "strategy",
    "trainer.precision": "precision",
    "give trainer.precision=bf16-mixed or 16-mixed": "amp bf16 fp16",
    "compile": "torch_compile torchcompile",
    "threads": "cpu_threads num_threads",
    "trainer.benchmark": "autotune",
    # validation and tests
    "every epoch is validated, for the learning rate follows it; leave it out": (
        "check_val_every_n_epoch val_check_interval"
    ),
    "every held-out image is used; leave it out": (
        "limit_predict_batches limit_test_batches limit_val_batches"
    ),
    TEST: "eval evaluate test test_only",
    "train.py trains; scripts/evaluate.py run=<id> tests a finished run": "train",
    # what is kept
    CONTINUE: "checkpoint_path resume resume_from_checkpoint",
    "ckpt_path": "ckpt",
    "runs_dir": "default_root_dir log_dir out_dir output_dir save_dir",
    "tags": "exp_name run_name task_name",
    "loggers get a row an epoch; leave it out": "log_interval",
    "logger=<option>": "trainer.logger",
    "callbacks=<option>": "trainer.callbacks",
    "logger=tensorboard": "tensorboard",
    "logger=wandb": "wandb",
    "seed": "manual_seed random_seed seed_everything",
    "hparams_search=<option>": "optuna sweep",
    "a search minimises the validation error; leave it out": "optimized_metric",
    "hydra.sweeper.n_trials": "n_trials",
    "trainer=<option>": "compute",
    PLACES: "paths",
    SHOW: "extras",
    "more processes save memory; leave it out": "activation_checkpointing",
    "each process normalises its own images; leave it out": "sync_batchnorm",
}
KEYS = {word: ours for ours, words in KEYS_OF_OTHERS.items() for word in words.split()}
# What keys of a section mean that have no word of their own.
SECTIONS = {
    "optimizer": "optim=<option>",
    "scheduler": "scheduler=<option>",
    "net": "model=<option>",
    "paths": PLACES,
    "extras": SHOW,
}
# The same of options, by the words of others in the same group; spelling answers what is alike.
OPTIONS_OF_OTHERS = {
    "activation=identity": "linear none",
    "activation=leaky_relu": "lrelu",
    "activation=silu": "swish",
    "activation=torch.nn.Mish": "torch",
    "activation=torch.nn.Hardshrink": "hardshrink",
    "activation=torch.nn.Hardsigmoid": "hardsigmoid",
    "activation=torch.nn.LogSigmoid": "logsigmoid",
    "init=xavier": "glorot",
    "init=he": "kaiming kaiming_normal msra",
    "init=gaussian": "normal",
    **{f"model=timm model.name={name}": name for name in ("resnet18", "resnet34", "resnet50")},
    "optim=adamw optim._target_=torch.optim.Adam": "adam",
    "optim=paper": "sgd",
    "scheduler=multistep": "constant none",
    MILESTONES: "step",
    "trainer=gpu": "cuda",
    "trainer=ddp_cpu": "ddp_sim",
    "trainer=cpu": "default",
    "trainer=slurm": "multi_node",
    "trainer=ddp": "node",
    "debug=smoke": "default fdr",
    "hparams_search=lr": "mnist_optuna optuna",
    "callbacks=null": "default none",
    **{f"{group}=null": "none" for group in ("claim", "debug", "experiment")},
}
OPTIONS = {
    **{
        f"{ours.partition('=')[0]}={word}": ours
        for ours, words in OPTIONS_OF_OTHERS.items()
        for word in words.split()
    },
    **{
        f"data={name}": OTHER_DATA
        for name in ("cifar100", "fashion_mnist", "mnist", "stl10", "svhn")
    },
    "trainer=mps": "the devices are CPUs and CUDA's GPUs; choose trainer=cpu",
    "debug=limit": "give trainer.limit_train_batches=<number or fraction>",
    "callbacks=model_summary": "trainer.enable_model_summary=true",
    "callbacks=rich_progress_bar": "trainer.enable_progress_bar=true",
    **{f"logger={name}": OWN_LOGGER for name in ("aim", "comet", "mlflow", "neptune")},
}


def meaning(typed: str) -> str | None:
    """Return the remedy for a key, or an option `<group>=<option>`, of others; None where the word
    is not known."""
    words = OPTIONS.get(typed) if "=" in typed else _of_key(typed)
    if words is None or words == typed:
        return None
    is_ours = re.fullmatch(r"[\w.]+(=\S+)?( [\w.]+=\S+)*", words)
    return f"did you mean {words}?" if is_ours else words


def one_after_other(remedy: str | None, listed: str) -> str:
    """Return a remedy, where there is one, and what else can be given, as one sentence."""
    if remedy is None:
        return listed
    return f"{remedy} {listed}" if remedy.endswith("?") else f"{remedy}; {listed}"


def _of_key(key: str) -> str | None:
    *sections, last = key.split(".")
    named = (SECTIONS[section] for section in reversed(sections) if section in SECTIONS)
    return KEYS.get(key) or KEYS.get(last) or next(named, None)
