#!/bin/bash
# writes job scripts and submits them; not a batch script itself
for n in 1 2 4; do
cat > job.$n.sh <<EOF
#!/bin/bash
#SBATCH --nodes=$n
#SBATCH --time=10
srun ./solver
EOF
sbatch job.$n.sh
done
