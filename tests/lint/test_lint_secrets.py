"""`lint --fix` on scripts with secrets in them: what is kept, shown and sent on has none of these."""

from __future__ import annotations

import pytest

from stackyard.launch.request.job_file import job_text
from stackyard.lint.api import lint_text, to_intent

HEAD = "#!/bin/bash\n#SBATCH -t 10 -n 1\n"
SECRET = "Zq7aB3xk9LmN2pQ4rS8tV6wY"
TOKEN = "hf_" + "a1B2" * 8


def fixed(lines: str) -> tuple[tuple[str, ...], str]:
    """The prologue and the whole text of a job file from lines before a launch."""
    intent, notes = to_intent(lint_text(HEAD + lines, name="job.sh").script)
    return intent.prologue, job_text(intent, notes)


@pytest.mark.parametrize(
    "lines",
    [
        f"export WANDB_API_KEY={SECRET}",
        f"export A=1 WANDB_API_KEY='{SECRET}' B=2",
        f"if true; then\nexport WANDB_API_KEY={SECRET}\nfi",
        f"f() {{ export WANDB_API_KEY={SECRET}; }}",
        f'eval "export WANDB_API_KEY={SECRET}" && echo "x"',
        f'eval "export WANDB_API_KEY=\\"{SECRET}\\""',
        f"[ -e x ] && WANDB_API_KEY={SECRET}",
        f"export WANDB_API_KEY=${{WANDB_API_KEY:-{SECRET}}}",
        f"wandb login --relogin {SECRET}",
        f"export PLAIN={TOKEN}",
        f"A=$(curl -H 'Authorization: Bearer {SECRET}' https://x.org)",
        f"git clone https://me:{SECRET}@x.org/y.git",
        f"export PROXY=http://me:{SECRET}@x.org:80",
        f"cat > a.yaml <<EOF\napi_key: {SECRET}\nEOF",
        f"cat > a.json <<EOF\n{{\"a\": 1, \"api_key\": \"{SECRET}\"}}\nEOF",
        f"echo {TOKEN} | tee token",
        f"#SBATCH --comment={TOKEN}",
        f"WANDB_API_KEY={SECRET} srun ./b",
        f"export WANDB_API_KEY='{SECRET[:9]}\n{SECRET[9:]}'",
    ],
)  # fmt: skip
@pytest.mark.parametrize("last", ["srun ./a", "python a.py", "wait"])
def test_no_secret_leaves_the_script(lines: str, last: str) -> None:
    _, text = fixed(f"{lines}\n{last}\n")
    assert SECRET not in text and SECRET[9:] not in text and TOKEN not in text
    assert last == "wait" or "program: [" in text


@pytest.mark.parametrize(
    "launch",
    [
        f"WANDB_API_KEY={SECRET} srun ./a",
        f"srun --export=ALL,WANDB_API_KEY={SECRET} ./a",
        f"srun ./a --api-key {SECRET}",
        f"srun ./a --api-key={SECRET}",
        f"srun bash -c 'export WANDB_API_KEY={SECRET}; ./a'",
        f"srun ./a\ncurl -H 'Authorization: token {SECRET}' https://x.org",
        f"for i in 1; do\nsrun env HF_TOKEN={SECRET} ./a\ndone",
    ],
)
def test_no_secret_of_the_launch_leaves_the_script(launch: str) -> None:
    _, text = fixed(launch + "\n")
    assert SECRET not in text and "./a" in text and "***" in text


@pytest.mark.parametrize(
    ("lines", "prologue"),
    [
        (f"export A=1 HF_TOKEN={SECRET} B=2", ("export A=1 B=2",)),
        (f"HF_TOKEN={SECRET} A=1\nexport A HF_TOKEN", ("A=1", "export A HF_TOKEN")),
        ("export HF_TOKEN=$(cat ~/.token)", ("export HF_TOKEN=$(cat ~/.token)",)),
        ('export HF_TOKEN="$MY_TOKEN" KEY=${MY_KEY}', ('export HF_TOKEN="$MY_TOKEN" KEY=${MY_KEY}',)),
        ("export SSH_KEY=$HOME/.ssh/id", ("export SSH_KEY=$HOME/.ssh/id",)),
        ("export HF_TOKEN=", ("export HF_TOKEN=",)),
        ("export URL=https://x.org/a?b=1", ("export URL=https://x.org/a?b=1",)),
    ],
)
def test_what_is_no_secret_stays(lines: str, prologue: tuple[str, ...]) -> None:
    kept, text = fixed(f"{lines}\nsrun ./a --eos_token end2end --image-token 12\n")
    assert kept == prologue
    assert "--eos_token, end2end, --image-token, '12'" in text
    assert ("HF_TOKEN: its value may be a secret" in text) == (SECRET in lines)


DRAWN = "".join(map("".join, zip("qwertzui", "81726354", "ASDFGHJK", strict=True)))


@pytest.mark.parametrize(
    "lines",
    [
        'CMD="WANDB_API_KEY=@ python a.py"; export CMD',
        ': "${HF_TOKEN:=@}"',
        'wandb login "@"',
        "wandb login --host=https://x.org @",
        "python -c \"import wandb; wandb.login('@')\"",
        'cat > a.py <<EOF\nos.environ["WANDB_API_KEY"] = "@"\nEOF',
        "cat > a.ini <<EOF\npassword = hunter2hunter\nEOF",
        "cat > ~/.netrc <<EOF\nmachine x\n  login me\n  password hunter2hunter\nEOF",
        "printf 'machine x\\nlogin me\\npassword hunter2hunter\\n' > ~/.netrc",
        "setenv WANDB_API_KEY hunter2hunter",
        "export PASSWORD='hunter2hunter$x'",
        "curl -u me:hunter2hunter https://x.org -o a",
        'curl -H "X-API-Key: @" https://x.org -o a',
        "wget --password 'hunter2@hunter' https://x.org",
        "sshpass -p hunter2hunter scp a b",
        "mysql -u me -phunter2hunter db",
        "docker login -u me -p hunter2hunter",
        "docker login --password-stdin <<< @",
        'cat <<< "TOKEN=@" > .env',
        "declare -A K=([HF_TOKEN]=hunter2hunter)",
        "srun ./b +logger.wandb.api_key=hunter2hunter",
        "srun ./b --wandb.api-key hunter2hunter",
        "#SBATCH --export=ALL,A=1,WANDB_API_KEY=@",
        'singularity exec --env "A=1,WANDB_API_KEY=hunter2hunter" a.sif ./b',
        "srun ./b --token \\\n  @",
        'echo \'{"username":"me","key":"@"}\' > ~/.kaggle/kaggle.json',
        "export DATABASE_URL=postgres://me:hunter2hunter@x/y",
    ],
)
def test_secrets_in_other_forms(lines: str) -> None:
    for last in ("srun ./a", "python a.py"):
        _, text = fixed(f"{lines.replace('@', DRAWN) if 'hunter' not in lines else lines}\n{last}\n")
        assert DRAWN not in text and "hunter2" not in text


@pytest.mark.parametrize(
    "line",
    [
        "export MODEL_KEY_FILE=/data/a1B2c3D4e5F6/x",
        "python -c 'from notebook.auth import passwd' > x",
        "export PASSWORD=`uuidgen`",
        "export loss_key=gaussian_nll",
        'export OPTS="--tokenizer gpt2_v1 --max_tokens 4096"',
        "git clone https://x.org/y.git > log",
        "source token_2024_run_1b.sh",
    ],
)
def test_what_only_looks_like_a_secret_stays(line: str) -> None:
    assert fixed(f"{line}\nsrun ./a\n")[0] == (line,)
