(* Three small worlds, computed in the kernel on rationals with the rounds of Rounds.v: all orders of
   the registered costs, and largest losses ln s with s on a grid that is given.
   tests/proofs/test_worlds.py reads the values from here. *)
From mathcomp Require Import all_ssreflect all_algebra.
From dptopk Require Import Game Rounds Setwise Union.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* A cost, whether it is of bounded range and its r, and the mass with which it fails. *)
Definition entry := (bool * rat * rat)%type.
Definition most (vs : seq rat) (v : rat) : rat := foldr Num.max v vs.

(* The two outcomes of Rounds.v with probability 1 - dl; else an outcome that gives it all away, on
   either side. *)
Definition failed (dl v : rat) (W : rat -> rat -> rat) (p q : rat) : rat :=
  (1 - dl) * v + (W (p * dl) 0 + W 0 (q * dl)).

Fixpoint V (grid : seq rat) (n : nat) (E : seq entry) (p q : rat) : rat :=
  match n with
  | 0%N => positive p q
  | n'.+1 =>
    let play (c : entry) :=
      let W := V grid n' (rem c E) in
      let v := if c.1.1 then most [seq chord c.1.2 s W p q | s <- grid] 0
               else response c.1.2 W p q in
      failed c.2 v W p q in
    most [seq play c | c <- E] (positive p q)
  end.

Theorem world_pure :
  V [::] 2 [:: (false, 2%:Q, 0); (false, 2%:Q, 0)] 1 2%:Q = 2%:Q / 9%:Q.
Proof. by apply/eqP; vm_compute. Qed.

Theorem world_range :
  V [:: 1; 2%:Q; 4%:Q; 8%:Q; 16%:Q] 2 [:: (true, 16%:Q, 0); (true, 16%:Q, 0)] 1 1 = 53%:Q / 75%:Q.
Proof. by apply/eqP; vm_compute. Qed.

Theorem world_failure :
  V [::] 2 [:: (false, 2%:Q, 0); (false, 3%:Q, 1%:Q / 10%:Q)] 1 2%:Q = 2%:Q / 5%:Q.
Proof. by apply/eqP; vm_compute. Qed.
