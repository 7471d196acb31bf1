"""What users of Lightning, lightning-hydra-template and timm, and of earlier versions, type, with
what means the same here.

A key is looked up whole, then by its last part, and then by a section that it lies in; an option as
`<group>=<option>`. A value without a space is a key or an override of ours; any other is a remedy
in words. None of them changes what is trained: a key that has no equal here says so."""

import re

MILESTONES = "scheduler=multistep scheduler.milestones=<epochs>"
OTHER_DATA = "it is not among the data; give its images by data=folder data.root=<folder>"
CONTINUE = "the same command goes on from its last checkpoint; ckpt_path=<file> chooses another"
START = "nothing is downloaded; init.from_weights=<file> starts from a state_dict"
VALIDATED = "every epoch is validated, for the learning rate follows it; leave it out"
WHOLE = "every held-out image is used; leave it out"
ACCUMULATE = "a step is of data.batch_size images at once; more processes save memory"
GPUS = "give trainer=gpu, and trainer.devices=<number> for several"
OF_THE_DATA = "the data say how many there are; leave it out"
SHOW = "--cfg job prints the configuration; leave it out"
OWN_LOGGER = (
    "add it as a class: +logger.mine._target_=<package.Class>, and its settings as "
    "+logger.mine.<key>=<value>"
)
TEST = (
    "a run is tested at its end by evaluation=<protocols>, and scripts/evaluate.py run=<id> tests "
    "a finished one"
)

KEYS = {
    # how long
    **dict.fromkeys(
        ("epoch", "epochs", "max_epoch", "n_epochs", "num_epochs", "num_train_epochs"),
        "trainer.max_epochs",
    ),
    **dict.fromkeys(
        ("max_steps", "max_time", "min_epochs", "min_steps"),
        "a run is as long as trainer.max_epochs says",
    ),
    "fast_dev_run": "debug=smoke",
    # the step
    **dict.fromkeys(("batch_size", "bs", "global_batch", "train_batch_size"), "data.batch_size"),
    **dict.fromkeys(("accumulate_grad_batches", "gradient_accumulation_steps"), ACCUMULATE),
    **dict.fromkeys(
        ("clip_grad", "grad_clip", "gradient_clip_val", "max_grad_norm"),
        "trainer.gradient_clip_val",
    ),
    # the optimiser and the learning rate
    **dict.fromkeys(("opt", "optimizer", "optimiser"), "optim=<option>"),
    **dict.fromkeys(("base_lr", "learning_rate", "lr"), "optim.lr"),
    **dict.fromkeys(("wd", "weight_decay"), "optim.weight_decay"),
    "momentum": "optim.momentum",
    **dict.fromkeys(("lr_scheduler", "sched", "schedule"), "scheduler=<option>"),
    **dict.fromkeys(("warmup", "warmup_epochs"), "scheduler.warmup_epochs"),
    **dict.fromkeys(("decay_epochs", "drop_epochs", "drop_epochs_from"), MILESTONES),
    "auto_lr_find": "hparams_search=lr",
    # the network
    **dict.fromkeys(("arch", "backbone", "net", "network"), "model=<option>"),
    **dict.fromkeys(("act", "act_layer", "nonlinearity"), "activation=<option>"),
    **dict.fromkeys(("initialization", "initializer", "weight_init"), "init=<option>"),
    **dict.fromkeys(("drop", "drop_rate", "dropout"), "model.dropout"),
    **dict.fromkeys(("in_channels", "in_chans", "nb_classes", "num_classes"), OF_THE_DATA),
    **dict.fromkeys(
        ("initial_checkpoint", "pretrained", "state_dict", "weights", "weights_path"), START
    ),
    # the data
    **dict.fromkeys(("datamodule", "dataset"), "data=<option>"),
    **dict.fromkeys(("data_dir", "data_path", "dataset_dir"), "data.root"),
    **dict.fromkeys(("image_size", "img_size", "input_size"), "data.crop_px"),
    **dict.fromkeys(("num_workers", "workers"), "data.num_workers"),
    "hflip": "data.flip",
    "train_val_test_split": "data.val_per_class=<number> images of each class validate",
    "pin_memory": "memory is pinned for a GPU; leave it out",
    "bad_images": "an image that cannot be read ends the run; leave it out",
    "color_scale": "colours are shifted by the eigenvalues; leave it out",
    # the device
    **dict.fromkeys(("accelerator", "device"), "give trainer=cpu or trainer=gpu"),
    **dict.fromkeys(("gpu", "gpus", "n_gpus", "num_gpus"), GPUS),
    **dict.fromkeys(("devices", "nproc", "num_processes", "world_size"), "trainer.devices"),
    **dict.fromkeys(("nodes", "num_nodes"), "trainer.num_nodes"),
    "strategy": "give trainer.devices=<processes>; they train by DDP",
    "precision": "trainer.precision",
    **dict.fromkeys(("amp", "bf16", "fp16"), "give trainer.precision=bf16-mixed or 16-mixed"),
    **dict.fromkeys(("torch_compile", "torchcompile"), "compile"),
    **dict.fromkeys(("cpu_threads", "num_threads"), "threads"),
    "autotune": "trainer.benchmark",
    # validation and tests
    **dict.fromkeys(("check_val_every_n_epoch", "val_check_interval"), VALIDATED),
    **dict.fromkeys(("limit_predict_batches", "limit_test_batches", "limit_val_batches"), WHOLE),
    **dict.fromkeys(("eval", "evaluate", "test", "test_only"), TEST),
    "train": "train.py trains; scripts/evaluate.py run=<id> tests a finished run",
    # what is kept
    **dict.fromkeys(("checkpoint_path", "resume", "resume_from_checkpoint"), CONTINUE),
    "ckpt": "ckpt_path",
    **dict.fromkeys(
        ("default_root_dir", "log_dir", "out_dir", "output_dir", "save_dir"), "runs_dir"
    ),
    **dict.fromkeys(("exp_name", "run_name", "task_name"), "tags"),
    "log_interval": "trainer.log_every_n_steps",
    "trainer.logger": "logger=<option>",
    "trainer.callbacks": "callbacks=<option>",
    "tensorboard": "logger=tensorboard",
    "wandb": "logger=wandb",
    **dict.fromkeys(("manual_seed", "random_seed", "seed_everything"), "seed"),
    **dict.fromkeys(("optuna", "sweep"), "hparams_search=<option>"),
    "optimized_metric": "a search minimises the validation error; leave it out",
    "n_trials": "hydra.sweeper.n_trials",
    "compute": "trainer=<option>",
    "paths": "give data.root, runs_dir or cache_dir",
    "extras": SHOW,
    "activation_checkpointing": "more processes save memory; leave it out",
    "sync_batchnorm": "each process normalises its own images; leave it out",
}
# What keys of a section mean that have no word of their own.
SECTIONS = {
    "optimizer": "optim=<option>",
    "scheduler": "scheduler=<option>",
    "net": "model=<option>",
    "paths": KEYS["paths"],
    "extras": SHOW,
}
OPTIONS = {
    "activation=hswish": "activation=hardswish",
    "activation=linear": "activation=identity",
    "activation=lrelu": "activation=leaky_relu",
    "activation=none": "activation=identity",
    "activation=swish": "activation=silu",
    "activation=torch": "activation=torch.nn.Mish",
    **{
        f"activation={name.lower()}": f"activation=torch.nn.{name}"
        for name in ("Hardshrink", "Hardsigmoid", "LogSigmoid")
    },
    "init=default": "init=torch_default",
    "init=glorot": "init=xavier",
    "init=kaiming": "init=he",
    "init=kaiming_normal": "init=he",
    "init=kaiming_uniform": "init=he_uniform",
    "init=msra": "init=he",
    "init=normal": "init=gaussian",
    "init=trunc_normal": "init=truncated_normal",
    "model=resnet18": "model=timm model.name=resnet18",
    "model=resnet34": "model=timm model.name=resnet34",
    "model=resnet50": "model=timm model.name=resnet50",
    **{
        f"data={name}": OTHER_DATA
        for name in ("cifar100", "fashion_mnist", "mnist", "stl10", "svhn")
    },
    "data=cifar": "data=cifar10",
    "data=imagenet1k": "data=imagenet",
    "optim=adam": "optim=adamw optim._target_=torch.optim.Adam",
    "optim=sgd": "optim=paper",
    "scheduler=constant": "scheduler=multistep",
    "scheduler=none": "scheduler=multistep",
    "scheduler=step": MILESTONES,
    "evaluation=center_crop": "evaluation=center",
    "evaluation=ten_crop": "evaluation=ten_view",
    "trainer=cuda": "trainer=gpu",
    "trainer=ddp_sim": "trainer=ddp_cpu",
    "trainer=default": "trainer=cpu",
    "trainer=mps": "the devices are CPUs and CUDA's GPUs; choose trainer=cpu",
    "trainer=multi_node": "trainer=slurm",
    "trainer=node": "trainer=ddp",
    "trainer=one_gpu": "trainer=gpu",
    "debug=default": "debug=smoke",
    "debug=fdr": "debug=smoke",
    "debug=limit": "give trainer.limit_train_batches=<number or fraction>",
    **{f"{group}=none": f"{group}=null" for group in ("callbacks", "claim", "debug", "experiment")},
    "callbacks=default": "callbacks=null",
    "callbacks=model_summary": "trainer.enable_model_summary=true",
    "callbacks=rich_progress_bar": "trainer.enable_progress_bar=true",
    **{f"logger={name}": OWN_LOGGER for name in ("aim", "comet", "mlflow", "neptune")},
    "hparams_search=mnist_optuna": "hparams_search=lr",
    "hparams_search=optuna": "hparams_search=lr",
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
